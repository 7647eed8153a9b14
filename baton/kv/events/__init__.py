"""The ordered stream of which blocks a store or a worker holds: log, service, replica."""
