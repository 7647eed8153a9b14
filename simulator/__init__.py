"""A cluster in simulated time, run with the router's code or another policy: `baton simulate`."""
