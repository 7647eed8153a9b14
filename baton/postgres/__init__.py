"""Postgres, for what is kept and asked for later: connections, schema, and one for this machine.

Nothing here is in the path of an inference request.
"""
