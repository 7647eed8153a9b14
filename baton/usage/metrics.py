"""What is counted of usage records on their way."""

from baton.telemetry.metrics import Counter, Gauge

SPOOL_BYTES = Gauge(
    "baton_usage_spool_bytes", "Usage records on disk, and what those of running requests will be."
)
SPOOL_CAPACITY_BYTES = Gauge(
    "baton_usage_spool_capacity_bytes", "The most of them that there may be; 0: none are kept."
)
SPOOL_FULL = Gauge(
    "baton_usage_spool_full", "1 while there is no room for the records of further requests."
)
SPOOL_STALLED = Gauge(
    "baton_usage_spool_stalled",
    "1 while the disk does not take usage records in time: they wait in memory.",
)
UNRECORDED = Counter(
    "baton_usage_unrecorded_requests_total",
    "Requests that ran without a usage record: the spool was full.",
)
LOST = Counter(
    "baton_usage_lost_requests_total",
    "Requests whose frontend ended before them, found in its spool.",
)
DAMAGED_BYTES = Counter(
    "baton_usage_damaged_bytes_total", "Bytes of the spool that are no whole line, passed over."
)
DELIVERED = Counter(
    "baton_usage_records_delivered_total", "Usage records that a sink has taken.", ["sink"]
)
SINK_FAILURES = Counter(
    "baton_usage_sink_failures_total",
    "Times that a sink did not take usage records; they are brought again.",
    ["sink"],
)
SINK_OLDEST = Gauge(
    "baton_usage_sink_oldest_record_timestamp_seconds",
    "When the oldest usage record was written that a sink has not taken; 0: it has all.",
    ["sink"],
)
REFUSED = Counter(
    "baton_usage_records_refused_total",
    "Usage records that a sink can never take, for a value in them; each is in the log.",
    ["sink"],
)
