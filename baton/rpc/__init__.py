"""How processes speak over gRPC: channels, servers, interceptors, long-lived streams."""
