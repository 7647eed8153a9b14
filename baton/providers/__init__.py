"""Connections to providers' upstreams: their keys, the networks that they may be in, HTTP."""
