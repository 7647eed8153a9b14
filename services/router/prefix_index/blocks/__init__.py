"""Which set of holders each block has: in a dict, or in a compiled table a quarter its size."""
