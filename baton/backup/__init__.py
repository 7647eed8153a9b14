"""Backups of what outlives a cluster's processes: read at one etcd revision, sealed, restored."""
