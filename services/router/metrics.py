"""The router's metrics."""

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
PREDICTED_SECONDS = Histogram(
    "baton_router_predicted_ttft_seconds",
    "Predicted time to first token of placements",
    ["model"],
    buckets=latency_buckets(),
)
PROMPT_TOKENS = Counter(
    "baton_router_prompt_tokens_total", "Prompt tokens of placements", ["model", "expected"]
)
PREFETCHES = Counter(
    "baton_router_prefetches_total",
    "Prefetches of hot prefixes by stores: completed, partial, failed, dropped",
    ["outcome"],
)
PREFETCHED_BLOCKS = Counter(
    "baton_router_prefetched_blocks_total", "Blocks of hot prefixes that stores prefetched"
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
EVENT_GAPS = Counter(
    "baton_router_event_gaps_total", "KV event streams reopened because events were missed"
)
