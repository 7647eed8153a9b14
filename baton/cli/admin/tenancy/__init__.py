"""`baton tenants`, `baton projects` and `baton keys`: who may ask, and what for."""
