"""Stored conversations: their calls and records, and `client.conversations` of both clients."""
