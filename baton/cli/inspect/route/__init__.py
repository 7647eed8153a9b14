"""`baton route`: where requests run, and why."""
