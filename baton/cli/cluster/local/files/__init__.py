"""What a local cluster has on disk: a run's directory, its model, addresses for Prometheus."""
