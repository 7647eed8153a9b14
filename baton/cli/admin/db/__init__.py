"""`baton db`: the schema of the database that usage is kept in, and what is old there."""
