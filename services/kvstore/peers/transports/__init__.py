"""Transports of bytes between stores."""
