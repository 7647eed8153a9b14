"""Which frontend gets a request: the least used, unless the routers would have it wait."""
