"""Files of tenants: rows in Postgres, and their bytes as objects at `files.url`.

A file's row is inserted before its object is written, and is `ready` once the object is whole. A
deleted row, whatever deleted it, leaves the object's name in `orphaned_objects` in the same
transaction, and frontends delete what is named there. So an object has a row or is named there, and
a row that is ready has its object.
"""
