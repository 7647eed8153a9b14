"""gRPC clients for the links between processes: a message costs no task switch."""
