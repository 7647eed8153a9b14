"""Encoding of KV objects and their leases in messages."""
