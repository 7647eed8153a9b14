"""This machine's kernel: what it allows a process, and whose owner it knows to be alive."""
