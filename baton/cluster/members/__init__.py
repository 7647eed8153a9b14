"""Which processes are alive: registration, discovery, probes, and subscriptions to changes."""
