"""Who may ask, and how much: API keys, and the limits of keys, projects and tenants."""
