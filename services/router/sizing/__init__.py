"""How many replicas each pool of workers needs, and why. Pure: no I/O, no clock."""
