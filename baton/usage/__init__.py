"""Usage and cost of requests: recorded on a frontend's disk, delivered to sinks, and summed."""
