"""Admission order: requests wait here until a worker is almost idle. Pure: no I/O, no clock."""
