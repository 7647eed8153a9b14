"""Processes and how they speak: errors, channels, servers and the life of a process."""
