"""Where a process runs: what the kernel allows it, files, ports, locks, and redaction."""
