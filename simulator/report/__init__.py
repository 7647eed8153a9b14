"""What a simulation found, as a table, JSON and curves."""
