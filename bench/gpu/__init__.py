"""Baton's engines on one GPU: their tokens, whether sums see the batch, and their throughput."""
