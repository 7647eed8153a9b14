"""The life cycle of a process: composition, signals, drain, exit."""
