"""Connections to workers, and the prefill and decode streams that share them."""
