"""What a local cluster has compiled: what is there, and the rest for its next start."""
