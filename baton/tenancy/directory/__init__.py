"""All tenants, projects and keys in memory, and the authentication of requests."""
