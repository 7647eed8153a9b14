"""Policies of other routers, as their papers and sources define them."""
