"""The ordered event stream of which blocks a store or worker holds: log, service, replica."""
