"""Anthropic's Messages as an upstream: requests and streams."""
