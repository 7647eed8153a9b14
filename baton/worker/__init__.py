"""Shared parts of prefill and decode workers: an engine, its streams to frontends, its KV
traffic.
"""
