"""Operators for CUDA whose sums do not see the batch, in Triton. Not run on a GPU yet."""
