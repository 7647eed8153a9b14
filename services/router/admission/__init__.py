"""Who goes next: requests wait here until a worker is about to run dry. Pure: no I/O, no clock."""
