"""Clients of HTTP/1.1 by the byte: what they send, how it is cut, and what they read."""
