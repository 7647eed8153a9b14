"""The DRAM tier: the object table, its slots, and their placement in the arena."""
