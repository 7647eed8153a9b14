"""Upstreams of providers: requests in their formats, their streams, retries and breakers."""
