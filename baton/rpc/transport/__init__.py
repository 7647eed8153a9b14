"""Sockets of both sides of a connection: protocol, buffers, lifetime and limits."""
