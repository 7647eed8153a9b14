"""Recordings of a router's inputs and decisions, replayed by `baton simulate --replay`."""
