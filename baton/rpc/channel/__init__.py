"""gRPC clients for connections between processes: a message costs no task switch."""
