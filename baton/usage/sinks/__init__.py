"""Where usage records go: each sink takes batches, and has them once it says so."""
