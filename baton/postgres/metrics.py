"""Metrics of the database."""

from baton.telemetry.metrics import Counter, Gauge

AVAILABLE = Gauge(
    "baton_state_database_available",
    "1 while the database is reachable and has this release's schema; 0 if not, or if none is set.",
)
FAILURES = Counter(
    "baton_state_database_failures_total",
    "Times that the database connection was lost or timed out during use.",
)
