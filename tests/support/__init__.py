"""Shared support for tests of every area: clusters, processes, doubles, waiting."""
