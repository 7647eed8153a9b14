"""A gRPC service, and clients of every kind."""
