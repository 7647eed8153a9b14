"""Sequences within vLLM: what is asked of it, what holds each back, and what it reports of them."""
