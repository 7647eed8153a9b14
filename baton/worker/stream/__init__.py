"""The life of one stream of a worker: start, suspicion, pause, handover, release."""
