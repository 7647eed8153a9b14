"""Metrics of turns and completions that wait for the database."""

from baton.spool.kind import SpoolKind, SpoolMetrics
from baton.telemetry.metrics import Counter, Gauge

MAX_RECORD = 256 * 1024 * 1024
SPOOL = SpoolKind(
    "conversations",
    "conversations.spool_path (BATON_CONVERSATIONS_SPOOL_PATH)",
    SpoolMetrics(
        Gauge(
            "baton_conversations_spool_bytes",
            "Size of the turns and completions that wait for the database, including space "
            "reserved for running requests.",
        ),
        Gauge("baton_conversations_spool_capacity_bytes", "Maximum size of them; 0: none wait."),
        Gauge(
            "baton_conversations_spool_full",
            "1 while there is no space for more: requests that would be stored are refused.",
        ),
        Gauge(
            "baton_conversations_spool_stalled",
            "1 while the disk is too slow for turns and completions; they wait in memory.",
        ),
        Counter(
            "baton_conversations_spool_refused_total",
            "Requests that were refused because the spool was full.",
        ),
        Counter(
            "baton_conversations_spool_damaged_bytes_total",
            "Bytes of damaged spool lines, which are skipped.",
        ),
        Counter(
            "baton_conversations_spool_delivered_total",
            "Turns and completions that were stored later than they ended.",
            ["sink"],
        ),
        Counter(
            "baton_conversations_spool_sink_failures_total",
            "Failed attempts to store them; they are repeated.",
            ["sink"],
        ),
        Gauge(
            "baton_conversations_spool_oldest_timestamp_seconds",
            "Time of the oldest one that waits; 0: none does.",
            ["sink"],
        ),
    ),
    MAX_RECORD,
)
DROPPED = Counter(
    "baton_conversations_spool_dropped_total",
    "Turns and completions that the database permanently rejects, or whose conversation was "
    "deleted; the log has their ids.",
)
