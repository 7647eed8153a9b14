"""The contract of a request: the grammar of its output, its limits, the events of its stream."""
