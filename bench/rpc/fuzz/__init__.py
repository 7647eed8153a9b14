"""Fuzzing of Baton's HTTP/2 and gRPC: inputs that are nearly right."""
