"""Every fault in docs/faults.md, injected into a cluster under load: `python -m bench.faults`."""
