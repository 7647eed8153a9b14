"""Tensor-parallel ranks: each is a process of vLLM's, and copies its own part of a block.

A block is the parts of all ranks in a row. A thread of each rank copies between its pages and
memory that the worker shares with it, whenever the worker asks: vLLM's own calls wait for steps.
"""
