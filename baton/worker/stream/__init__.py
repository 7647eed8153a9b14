"""Life cycle of one stream of a worker: start, probation, pause, handover, release."""
