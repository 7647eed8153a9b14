"""`baton db`: the database's schema, and the deletion of old records and of tenants."""
