"""Batches: requests from a file, which run when there is room, and their results.

A batch has one row, and one row per line of its input from its validation until its output is
written. A line is claimed under a lease, by a runner of any frontend, and has a result once: what
an owner writes whose lease has ended is not taken. Batches are claimed the same way, to check their
input and to write their output.
"""
