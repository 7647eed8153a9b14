"""Spools: logs of records on a process's disk, freed as sinks acknowledge them."""
