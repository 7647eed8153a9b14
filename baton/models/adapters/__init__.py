"""Adapters from directories, buckets, hubs and web servers: registered, and brought to workers."""
