"""The router's metrics."""

from collections.abc import Mapping

from baton.internal.v1 import router_pb2
from baton.telemetry.metrics import Counter, Gauge, Histogram, latency_buckets

PLACEMENTS = Counter(
    "baton_router_placements_total",
    "Place queries by outcome: local, remote, or the reason of a refusal",
    ["model", "outcome"],
)
PLACE_SECONDS = Histogram(
    "baton_router_place_seconds",
    "Time to decide a place query",
    buckets=(2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 1e-1),
)
QUEUE_LENGTH = Gauge(
    "baton_router_queue_length",
    "Requests that wait in this router until a worker is about to run dry",
    ["model", "class"],
)
QUEUE_SECONDS = Histogram(
    "baton_router_queue_seconds",
    "Time that requests waited, where they did not go at once, also in other routers, by outcome: "
    "placed, cancelled, session (its frontend is gone), or the reason of a refusal",
    ["class", "outcome"],
    buckets=latency_buckets(),
)
PREDICTED_SECONDS = Histogram(
    "baton_router_predicted_ttft_seconds",
    "Predicted time to first token of placements",
    ["model"],
    buckets=latency_buckets(),
)
PROMPT_TOKENS = Counter(
    "baton_router_prompt_tokens_total", "Prompt tokens of placements", ["model", "expected"]
)
SESSIONS = Gauge("baton_router_sessions", "Open Place streams")
TICKETS = Gauge("baton_router_tickets", "Open tickets")
INSTANCES = Gauge("baton_router_instances", "Live workers and stores by role", ["role"])
INDEX_BLOCKS = Gauge("baton_router_index_blocks", "Distinct blocks in the prefix index")
INDEX_CHANGES = Counter(
    "baton_router_index_changes_total", "Blocks stored and evicted, from KV events", ["change"]
)
STREAM_BREAKS = Counter(
    "baton_router_stream_breaks_total",
    "Broken streams from workers and stores: load, events",
    ["stream"],
)
LIMIT_BUCKETS = Gauge(
    "baton_router_limit_buckets",
    "Limits of keys, projects and tenants that this router owns and frontends use",
)
UNWRITTEN_BUDGETS = Gauge(
    "baton_router_unwritten_budgets",
    "Budgets whose spending is not in etcd yet; it is written each second, so that this stays up "
    "only while etcd is away",
)
SPEND_ALERTS = Counter(
    "baton_router_spend_alerts_total",
    "Spend alerts that were crossed, by whose they are (`project`, `tenant`)",
    ["subject"],
)
EVENT_GAPS = Counter(
    "baton_router_event_gaps_total", "KV event streams reopened because events were missed"
)


class PlacementMetrics:
    """What is counted of each placement of one model: its series are looked up once."""

    def __init__(self, model: str) -> None:
        self._local = PLACEMENTS.labels(model, "local")
        self._remote = PLACEMENTS.labels(model, "remote")
        self._predicted = PREDICTED_SECONDS.labels(model)
        self._cached = PROMPT_TOKENS.labels(model, "cached")
        self._computed = PROMPT_TOKENS.labels(model, "computed")
        self._model = model

    def count(self, prompt_tokens: int, placement: router_pb2.Placement) -> None:
        """Count a placement."""
        prediction = placement.prediction
        (self._remote if placement.HasField("prefill") else self._local).inc()
        self._predicted.observe(
            prediction.queue_seconds + prediction.transfer_seconds + prediction.prefill_seconds
        )
        self._cached.inc(prediction.cached_tokens)
        self._computed.inc(prompt_tokens - prediction.cached_tokens)

    def set_waiting(self, counts: Mapping[str, int]) -> None:
        """Say how many requests wait.

        Args:
            counts: by the name of their priority class.
        """
        for name, count in counts.items():
            QUEUE_LENGTH.labels(self._model, name).set(count)
