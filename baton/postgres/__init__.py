"""Postgres, for data that is stored and queried later: connections, schema, and a local server.

No inference request depends on this package.
"""
