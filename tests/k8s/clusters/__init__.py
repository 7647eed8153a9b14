"""Pods of what is rendered: they start, serve, and are replaced under load."""
