"""What is recorded when a request has ended: usage, pace and span."""
