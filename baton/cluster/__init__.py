"""Cluster membership and shared state: etcd, registration, discovery, tenants."""
