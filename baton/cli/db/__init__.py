"""`baton db`: the schema of the database that processes keep usage and state in."""
