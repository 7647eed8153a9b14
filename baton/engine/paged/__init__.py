"""The engine around a runner: pages, scheduling and sequences, without the computation of a
batch.
"""
