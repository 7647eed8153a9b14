"""gRPC servers: connections, calls, health and reflection."""
