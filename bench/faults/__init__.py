"""Every fault that docs/faults.md names, done to a cluster under load: `python -m bench.faults`."""
