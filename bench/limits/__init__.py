"""Limits shared by frontends: admitted requests, exactness, and number of messages."""
