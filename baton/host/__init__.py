"""The host of a process: cgroup limits, files, ports, locks, and redaction."""
