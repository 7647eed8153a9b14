"""Connections to workers, and the streams of work that share them."""
