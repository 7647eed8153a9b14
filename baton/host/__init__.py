"""Where a process runs: what the kernel allows it, whose owner is alive, what Kubernetes sets."""
