"""The router's metrics."""

from baton.telemetry.metrics import Counter, Gauge, Histogram, latency_buckets

PLACEMENTS = Counter(
    "baton_router_placements_total",
    "Answered place queries by outcome: local, remote, or the reason of a refusal",
    ["outcome"],
)
PLACE_SECONDS = Histogram(
    "baton_router_place_seconds",
    "Time to answer a place query",
    buckets=(2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 1e-1),
)
PREDICTED_SECONDS = Histogram(
    "baton_router_predicted_ttft_seconds",
    "Predicted time to first token of placements",
    buckets=latency_buckets(),
)
PROMPT_TOKENS = Counter(
    "baton_router_prompt_tokens_total", "Prompt tokens of placements", ["expected"]
)
HINTS = Counter(
    "baton_router_hints_total",
    "Hints that stores should pull a hot prefix: pulled, partial, failed, dropped",
    ["outcome"],
)
HINTED_BLOCKS = Counter(
    "baton_router_hinted_blocks_total", "Blocks that stores have since they were told to pull them"
)
SESSIONS = Gauge("baton_router_sessions", "Open Place streams")
TICKETS = Gauge("baton_router_tickets", "Open tickets")
INSTANCES = Gauge("baton_router_instances", "Live workers and stores by role", ["role"])
INDEX_BLOCKS = Gauge("baton_router_index_blocks", "Distinct blocks in the prefix index")
INDEX_CHANGES = Counter(
    "baton_router_index_changes_total", "Blocks stored and evicted, as events told", ["change"]
)
STREAM_BREAKS = Counter(
    "baton_router_stream_breaks_total",
    "Broken streams from workers and stores, by what they carry",
    ["stream"],
)
EVENT_GAPS = Counter(
    "baton_router_event_gaps_total", "Event streams that missed something and were watched anew"
)
