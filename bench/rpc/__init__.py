"""What HTTP/2 and gRPC cost in Python: Baton's own beside libraries."""
