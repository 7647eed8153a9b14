"""KV benchmarks: the store, its disk, transfer between hosts, and eviction."""
