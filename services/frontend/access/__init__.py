"""Access control: API keys, and the limits of keys, projects and tenants."""
