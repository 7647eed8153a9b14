"""Limits shared by frontends: what is admitted, how exactly, and for how many messages."""
