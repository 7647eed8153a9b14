"""Files of a local cluster: the run directory, the model, addresses for Prometheus."""
