"""Pools of real processes that follow the manifests' queries while the load changes."""
