"""Ordered event stream of the blocks that a store or worker holds: log, service, replica."""
