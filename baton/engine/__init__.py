"""Engines, which take token ids and KV and yield tokens and KV. base.py is the contract."""
