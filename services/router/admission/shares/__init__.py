"""What tenants, tiers and classes are given of the workers' time."""
