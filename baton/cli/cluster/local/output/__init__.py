"""Terminal output of a local cluster."""
