"""Baton's frontend compared with other servers at equal pace: `python -m bench.peers`."""
