"""How tenants, tiers and classes share the workers' time."""
