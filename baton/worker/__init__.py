"""Shared parts of prefill and decode workers: engine, streams to frontends, KV traffic."""
