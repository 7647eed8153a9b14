"""Commands that operators change a cluster with: tenants, database, usage, certificates."""
