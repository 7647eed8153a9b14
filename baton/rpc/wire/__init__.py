"""gRPC over HTTP/2 as bytes: messages, metadata, timeouts, statuses.

The format is gRPC's PROTOCOL-HTTP2.md.
"""
