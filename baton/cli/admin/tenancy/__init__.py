"""`baton tenants`, `baton projects` and `baton keys`: management of tenants, projects and API
keys."""
