"""`baton db`: the schema of the usage database, and the deletion of old records."""
