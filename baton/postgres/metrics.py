"""Metrics of the database."""

from baton.telemetry.metrics import Counter, Gauge

AVAILABLE = Gauge(
    "baton_state_database_available",
    "1 while the database is reachable and has a schema that the pool can use; 0 if not.",
    ["pool"],
)
FAILURES = Counter(
    "baton_state_database_failures_total",
    "Times that the database connection was lost or timed out during use.",
    ["pool"],
)
