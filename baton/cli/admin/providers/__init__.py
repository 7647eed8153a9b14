"""`baton providers`: upstreams that serve models in the cluster's place."""
