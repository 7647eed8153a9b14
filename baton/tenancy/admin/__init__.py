"""Changes to tenants, projects, accounts, keys, budgets and classes, each with its audit record."""
