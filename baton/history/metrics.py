"""Metrics of kept requests."""

from baton.telemetry.metrics import Counter, Gauge

KEPT = Counter("baton_history_kept_total", "Requests kept on disk, by kind.", ["kind"])
DROPPED = Counter(
    "baton_history_dropped_total",
    "Requests that were not kept, because the disk was too slow or rejected them.",
)
BYTES = Gauge("baton_history_bytes", "Size of the requests kept on disk.")
