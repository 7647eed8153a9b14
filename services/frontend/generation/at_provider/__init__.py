"""Requests that run at a provider: resolved to a body, followed like those on workers."""
