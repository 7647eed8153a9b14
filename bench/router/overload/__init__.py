"""A real cluster under five times the load that its workers can handle."""
