"""Kubernetes: what is rendered, and the pods of it."""
