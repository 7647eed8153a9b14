"""Metrics of workers, including those that Kubernetes inference gateways scrape.

Each series of a worker carries its model as `model`, in addition to its own labels.
"""

from baton.telemetry.metrics import Counter, Gauge

PUT_BYTES = Counter("baton_worker_kv_put_bytes", "KV bytes committed to the store.")
GET_BYTES = Counter("baton_worker_kv_get_bytes", "KV bytes fetched from the store.")
BLOCKS_LOST = Counter("baton_worker_kv_blocks_lost", "KV blocks that the store could not accept.")
BLOCKS_IDLE = Counter(
    "baton_worker_kv_blocks_idle",
    "Idle KV blocks evicted from the engine's pages because the store holds them.",
)
CUTS_SHORT = Counter(
    "baton_worker_kv_cuts_short",
    "Sequences admitted again with a shorter prefix, because part of its KV did not arrive.",
)
LATE_MASKS = Counter(
    "baton_worker_late_masks_total",
    "Tokens delayed by a step or more because a grammar's mask was late.",
)
COMPUTED_TOKENS = Counter(
    "baton_worker_computed_tokens_total", "Tokens computed in forward passes."
)
CACHED_TOKENS = Counter(
    "baton_worker_cached_tokens_total", "Prompt tokens found in a cache instead of computed."
)
STREAMS = Gauge("baton_worker_streams", "Open work streams.")
PAUSED = Gauge("baton_worker_paused_sequences", "Sequences paused until their clients read.")
PAUSED_PAGES = Gauge(
    "baton_worker_paused_pages",
    "KV pages held by paused sequences; shared pages count once per sequence.",
)
OUTRANKED_NOW = Gauge(
    "baton_worker_outranked_sequences",
    "Sequences that keep their KV pages and wait because higher classes took their places.",
)
OUTRANKED = Counter(
    "baton_worker_outranked_total",
    "Times that a running sequence gave its place or pages to a higher class.",
)
IDLE_ROOM_OFFERED = Counter(
    "baton_worker_idle_room_offered_total",
    "Tokens of lower classes for which steps with higher classes had time.",
)
IDLE_ROOM_USED = Counter(
    "baton_worker_idle_room_used_total", "Of these, tokens that sequences of lower classes got."
)
ADAPTERS = Gauge("baton_worker_adapters", "Registered LoRA adapters in the engine's memory.")
ADAPTER_LOADS = Counter("baton_worker_adapter_loads_total", "LoRA adapters loaded into memory.")
ADAPTER_LOAD_SECONDS = Counter(
    "baton_worker_adapter_load_seconds_total", "Time from asking for an adapter to having it."
)
ADAPTER_FAILURES = Counter(
    "baton_worker_adapter_failures_total",
    "LoRA adapters that could not be used: their files are missing, changed or do not fit.",
)
# Names and labels that inference gateways know from vLLM.
_MODEL = ["model_name"]
WAITING = Gauge("vllm:num_requests_waiting", "Sequences that wait to join the batch.", _MODEL)
RUNNING = Gauge("vllm:num_requests_running", "Sequences in the batch.", _MODEL)
KV_USAGE = Gauge("vllm:kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.", _MODEL)
CACHE_CONFIG = Gauge(
    "vllm:cache_config_info",
    "KV pages of the engine.",
    ["model_name", "block_size", "num_gpu_blocks"],
)
