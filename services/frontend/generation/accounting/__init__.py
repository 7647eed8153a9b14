"""Records of an ended request: usage, pace and span."""
