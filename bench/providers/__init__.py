"""Benchmarks of models at providers: CPU per token through the frontend, and dead upstreams."""
