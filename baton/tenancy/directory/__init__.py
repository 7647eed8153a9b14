"""Every tenant, project and key in memory, and the lookup of each request."""
