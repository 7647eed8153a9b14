"""Studies of who goes next, on simulated workers: python -m bench.router.studies."""
