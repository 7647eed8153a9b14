"""Baton's frontend beside other servers', at equal pace: `python -m bench.peers`."""
