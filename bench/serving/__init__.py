"""Serving benchmarks: cost of requests through a whole cluster, and effects of failures."""
