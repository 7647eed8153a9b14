"""The engine around a runner: pages, scheduling and sequences, independent of how a batch is
computed.
"""
