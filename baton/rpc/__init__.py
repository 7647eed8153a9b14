"""How processes speak over gRPC: HTTP/2, servers, channels, long-lived streams."""
