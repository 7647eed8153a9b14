"""The engine around a runner: pages, scheduling and sequences, whatever computes a batch."""
