"""Tenants, projects and API keys: records in etcd, and the in-memory directory built from them."""
