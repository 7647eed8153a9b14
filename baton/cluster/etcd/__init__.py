"""Reach etcd: its client, its certificates, and one that runs on this machine."""
