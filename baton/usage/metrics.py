"""Metrics of usage records and their delivery."""

from baton.spool.frames import MAX_BODY
from baton.spool.kind import SpoolKind, SpoolMetrics
from baton.telemetry.metrics import Counter, Gauge

SPOOL_BYTES = Gauge(
    "baton_usage_spool_bytes",
    "Size of the usage records on disk, including space reserved for running requests.",
)
SPOOL_CAPACITY_BYTES = Gauge(
    "baton_usage_spool_capacity_bytes",
    "Maximum size of the usage records on disk; 0: usage is not recorded.",
)
SPOOL_FULL = Gauge(
    "baton_usage_spool_full", "1 while the spool is full and cannot record further requests."
)
SPOOL_STALLED = Gauge(
    "baton_usage_spool_stalled",
    "1 while the disk is too slow for usage records; they wait in memory.",
)
UNRECORDED = Counter(
    "baton_usage_unrecorded_requests_total",
    "Requests without a usage record because the spool was full.",
)
LOST = Counter(
    "baton_usage_lost_requests_total",
    "Requests found in the spool of a frontend that ended before they did.",
)
DAMAGED_BYTES = Counter(
    "baton_usage_damaged_bytes_total", "Bytes of damaged spool lines, which are skipped."
)
DELIVERED = Counter(
    "baton_usage_records_delivered_total", "Usage records delivered, by sink.", ["sink"]
)
SINK_FAILURES = Counter(
    "baton_usage_sink_failures_total",
    "Failed deliveries of usage records, by sink; they are retried.",
    ["sink"],
)
SINK_OLDEST = Gauge(
    "baton_usage_sink_oldest_record_timestamp_seconds",
    "Time of the oldest usage record not delivered to the sink; 0: all are delivered.",
    ["sink"],
)
REFUSED = Counter(
    "baton_usage_records_refused_total",
    "Usage records that the sink permanently rejects because of a value in them; the log has each "
    "of them.",
    ["sink"],
)

USAGE = SpoolKind(
    "usage",
    "usage.spool_path (BATON_USAGE_SPOOL_PATH)",
    SpoolMetrics(
        SPOOL_BYTES,
        SPOOL_CAPACITY_BYTES,
        SPOOL_FULL,
        SPOOL_STALLED,
        UNRECORDED,
        DAMAGED_BYTES,
        DELIVERED,
        SINK_FAILURES,
        SINK_OLDEST,
        LOST,
    ),
    MAX_BODY,
)
"""The spool of usage records."""
