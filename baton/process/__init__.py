"""The life of a process: composition, signals, drain, exit."""
