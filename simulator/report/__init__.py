"""Results of a simulation, as a table, JSON and curves."""
