"""What tenants have stored, and their limits of it."""
