"""Doubles of services: real gRPC servers that follow a script and do no work."""
