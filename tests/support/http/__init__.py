"""Clients of HTTP/1.1, byte by byte: what they send, how it is split, and what they read."""
