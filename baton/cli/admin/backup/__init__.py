"""`baton backup` and `baton restore`: what outlives a cluster's processes, in a sealed file."""
