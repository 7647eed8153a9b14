"""Tenants, their projects and API keys: records in etcd, and the directory that is made of them."""
