"""Metrics of webhooks."""

from baton.telemetry.metrics import Counter, Gauge, Histogram

ATTEMPTS = Counter(
    "baton_webhooks_attempts_total",
    "Attempts to deliver events, by outcome (`delivered`, `retrying`; `given_up`: the last one of "
    "an event at an endpoint).",
    ["outcome"],
)
SECONDS = Histogram(
    "baton_webhooks_attempt_seconds",
    "Duration of attempts.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
ACTIVE = Gauge("baton_webhooks_attempts_active", "Attempts in progress at this process.")
WAITING = Gauge(
    "baton_webhooks_waiting",
    "Events that endpoints of the whole cluster have not received yet, counted once per event and "
    "endpoint.",
)
OLDEST = Gauge(
    "baton_webhooks_oldest_timestamp_seconds", "Time of the oldest one of these; 0: there is none."
)
