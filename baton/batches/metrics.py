"""Metrics of batches, which any process with their database counts."""

from baton.telemetry.metrics import Gauge

UNFINISHED = Gauge(
    "baton_batch_lines_unfinished",
    "Lines of the batches of the whole cluster that are in progress and have not ended, as this "
    "process counted them last.",
)
