"""What is counted of the database."""

from baton.telemetry.metrics import Counter, Gauge

AVAILABLE = Gauge(
    "baton_state_database_available",
    "1 while the database answers and has the schema of this release; 0 also where none is set.",
)
FAILURES = Counter(
    "baton_state_database_failures_total",
    "Times that the database was lost while it was used, or did not answer in time.",
)
