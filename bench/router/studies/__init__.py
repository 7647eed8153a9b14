"""Studies of queue order, on simulated workers: python -m bench.router.studies."""
