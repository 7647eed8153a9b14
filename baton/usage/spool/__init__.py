"""The spool: a log of usage records on a frontend's disk, let go of as sinks have them."""
