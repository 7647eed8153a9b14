"""Where a request runs: the router's decision, or a random one without a router."""
