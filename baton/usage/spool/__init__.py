"""The spool: a log of usage records on a frontend's disk, freed as sinks acknowledge them."""
