"""Operators for CUDA, in Triton, whose sums do not depend on the batch. Not yet run on a GPU."""
