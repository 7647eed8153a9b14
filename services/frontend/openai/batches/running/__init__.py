"""The runner: claims lines and batches, runs them, and writes results and output."""
