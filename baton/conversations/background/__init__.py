"""Responses that run in the background: one frontend at a time has the lease of each.

A row exists while a response runs. Its owner renews the lease and adds what was generated, with one
statement per second for all of its responses. When the lease has ended, another frontend claims the
row, and continues. The end writes the response and deletes the row in one transaction, which only
the latest owner can do.
"""
