"""Commands by which operators change a cluster: tenants, database, usage, certificates."""
