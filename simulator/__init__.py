"""A cluster in simulated time, under the router's objects or another policy: `baton simulate`."""
