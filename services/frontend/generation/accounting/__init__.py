"""What is recorded of a request when it has ended: usage, pace and span."""
