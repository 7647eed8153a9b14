"""Postgres, for data that is stored and queried later: connections, schema, and a local server.

Usage is queried later; only requests that store or continue responses wait for Postgres.
"""
