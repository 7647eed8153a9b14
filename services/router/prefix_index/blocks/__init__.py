"""The holder set of each block: in a dict, or in a compiled table a quarter its size."""
