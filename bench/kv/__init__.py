"""How fast KV moves: the store, its disk, between hosts, and eviction."""
