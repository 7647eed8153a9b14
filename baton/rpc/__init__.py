"""gRPC between processes: HTTP/2, servers, channels, long-lived streams."""
