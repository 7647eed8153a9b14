"""The router's metrics."""

from collections.abc import Mapping

from baton.telemetry.metrics import Counter, Gauge, Histogram, latency_buckets
from services.router.policy.placement import Decision

PLACEMENTS = Counter(
    "baton_router_placements_total",
    "Placement queries by outcome: local, remote, or the reason of a rejection.",
    ["model", "outcome"],
)
PLACE_SECONDS = Histogram(
    "baton_router_place_seconds",
    "Time to decide a placement query.",
    buckets=(2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 1e-1),
)
QUEUE_LENGTH = Gauge(
    "baton_router_queue_length",
    "Requests queued in this router.",
    ["model", "class"],
)
QUEUE_OLDEST_SECONDS = Gauge(
    "baton_router_queue_oldest_seconds",
    "Age of the oldest request queued in this router; 0: the queue is empty.",
    ["model"],
)
REFUSALS = Counter(
    "baton_router_refusals_total",
    "Placement queries rejected, at once or after a wait, by priority class and reason.",
    ["class", "reason"],
)
QUEUE_SECONDS = Histogram(
    "baton_router_queue_seconds",
    "Queue time of requests that were not placed at once, time in other routers included, by "
    "outcome: placed, cancelled, session (the frontend's session ended), or the reason of a "
    "rejection.",
    ["class", "outcome"],
    buckets=latency_buckets(),
)
PREDICTED_SECONDS = Histogram(
    "baton_router_predicted_ttft_seconds",
    "Predicted time to first token of placements.",
    ["model"],
    buckets=latency_buckets(),
)
TTFT_TARGETS = Counter(
    "baton_router_ttft_targets_total",
    "Requests with a TTFT target, their own or their class's, by outcome: kept or missed. "
    "Frontends report the outcome when a request ends.",
    ["class", "outcome"],
)
TTFT_FACTOR = Gauge(
    "baton_router_ttft_factor",
    "Ratio of actual to predicted TTFT that most requests stay below. The router multiplies "
    "predictions by it when it checks TTFT targets.",
    ["model"],
)
PROMPT_TOKENS = Counter(
    "baton_router_prompt_tokens_total",
    "Prompt tokens of placements, by expectation: cached or computed.",
    ["model", "expected"],
)
LINE_ROOM = Gauge(
    "baton_router_line_room",
    "Sequences of class batch that workers would run and have wait, all models together.",
)
SESSIONS = Gauge("baton_router_sessions", "Open Place streams.")
TICKETS = Gauge("baton_router_tickets", "Open tickets.")
INSTANCES = Gauge("baton_router_instances", "Live workers and stores by role.", ["role"])
INDEX_BLOCKS = Gauge("baton_router_index_blocks", "Distinct blocks in the prefix index.")
INDEX_CHANGES = Counter(
    "baton_router_index_changes_total", "Blocks stored and evicted, from KV events.", ["change"]
)
STREAM_BREAKS = Counter(
    "baton_router_stream_breaks_total",
    "Broken streams from workers and stores: load, events.",
    ["stream"],
)
LIMIT_BUCKETS = Gauge(
    "baton_router_limit_buckets",
    "Limits of keys, projects and tenants that this router owns and frontends use.",
)
UNWRITTEN_BUDGETS = Gauge(
    "baton_router_unwritten_budgets",
    "Budgets whose spending is not yet in etcd. It is written every second, so a lasting value "
    "means that etcd is unavailable.",
)
SPEND_ALERTS = Counter(
    "baton_router_spend_alerts_total",
    "Spend alerts crossed, by owner (`project`, `tenant`).",
    ["subject"],
)
NEEDED_REPLICAS = Gauge(
    "baton_needed_replicas",
    "Replicas that a pool of workers needs in total, for the requests at all routers, by role "
    "(prefill, decode, combined). Take the maximum over routers. Absent: there is no decision.",
    ["role", "model"],
)
NEEDED_REPLICAS_REASON = Gauge(
    "baton_needed_replicas_reason",
    "1 for the reason of baton_needed_replicas. What it needs: arrivals, backlog, kv, batch; its "
    "bounds: floor, ceiling; no requests: idle, wake; kept although fewer would do for what is "
    "known: hold_window, hold_first_token, hold_rates, hold_reports, hold_routers.",
    ["role", "model", "reason"],
)
MODEL_TURN = Gauge(
    "baton_router_model_turn",
    "1 for the state of a model whose workers start on demand: ready, starting, on demand, "
    "leaving.",
    ["model", "state"],
)
EVENT_GAPS = Counter(
    "baton_router_event_gaps_total", "KV event streams reopened because events were missed."
)


class PlacementMetrics:
    """Counters of one model's placements, whose series are looked up once."""

    def __init__(self, model: str) -> None:
        self._local = PLACEMENTS.labels(model, "local")
        self._remote = PLACEMENTS.labels(model, "remote")
        self._predicted = PREDICTED_SECONDS.labels(model)
        self._cached = PROMPT_TOKENS.labels(model, "cached")
        self._computed = PROMPT_TOKENS.labels(model, "computed")
        self._model = model

    def count(self, prompt_tokens: int, decision: Decision) -> None:
        """Count a placement."""
        (self._local if decision.prefill_worker is None else self._remote).inc()
        self._predicted.observe(sum(decision.ttft))
        cached = decision.prefill.cached_tokens
        if cached:
            self._cached.inc(cached)
        self._computed.inc(prompt_tokens - cached)

    def set_waiting(self, counts: Mapping[str, int]) -> None:
        """Set the number of waiting requests.

        Args:
            counts: by the name of their priority class.
        """
        for name, count in counts.items():
            QUEUE_LENGTH.labels(self._model, name).set(count)
