"""Codex, unmodified, runs against a cluster: `make interop-codex`."""
