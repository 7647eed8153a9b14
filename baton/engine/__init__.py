"""Engines: take token ids and KV, yield tokens and KV. base.py is the contract."""
