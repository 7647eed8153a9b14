"""Where a process runs: what the kernel allows it, its files, ports and locks, and what is kept out of logs."""
