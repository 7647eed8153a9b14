"""Cost of HTTP/2 and gRPC in Python: Baton's own implementation compared with libraries."""
