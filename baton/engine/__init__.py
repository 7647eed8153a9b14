"""Engines: they take token ids and where KV is, and yield tokens."""
