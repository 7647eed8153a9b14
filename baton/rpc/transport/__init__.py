"""Sockets of both sides of a connection: their protocol, buffers, life and bounds."""
