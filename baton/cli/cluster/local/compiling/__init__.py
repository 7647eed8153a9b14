"""Compiled libraries of a local cluster: existing ones, and builds for its next start."""
