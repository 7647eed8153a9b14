"""The DRAM tier: the object table, its slots, and where they lie in the arena."""
