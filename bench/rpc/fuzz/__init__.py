"""Fuzzing of Baton's HTTP/2 and gRPC with almost valid inputs."""
