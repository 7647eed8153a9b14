"""Other KV stores with the same batches, in an environment of their own (`make bench-kv-peers`).

Each keeps its data in a process other than the one that puts and gets, and uses TCP. Only `run`
belongs to this environment; the rest imports the standard library and a peer's client.
"""
