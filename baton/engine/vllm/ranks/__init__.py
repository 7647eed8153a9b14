"""Tensor-parallel ranks: each is a process of vLLM's, and copies its own part of a block.

A block is the concatenated parts of all ranks. A thread in each rank copies between its pages and
memory that the worker shares with it, at the worker's request: vLLM's own calls wait for steps.
"""
