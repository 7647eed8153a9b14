"""Pools whose workers come and go: sized by the router's own object, or as other scalers do."""
