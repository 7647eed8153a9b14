"""What the frontend counts."""

from baton.telemetry.metrics import Counter, Gauge, Histogram, call_buckets

_DURATION = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)

ACTIVE = Gauge("baton_frontend_requests_active", "Requests that run now.")
REQUESTS = Counter(
    "baton_frontend_requests_total",
    "Requests that ended, refused ones too: by surface (`http`, `grpc`), operation (`chat`, "
    "`text_completion`, `tokenize`, `list_models`, `administration`, `unknown`), model (empty "
    "where it does not exist), adapter (empty: the model itself) and reason (`ok` or a reason of "
    "the error table).",
    ["surface", "operation", "model", "adapter", "reason"],
)
LIMIT_REFUSALS = Counter(
    "baton_frontend_limit_refusals_total",
    "Requests that a limit of their key, project or tenant refused, by limit "
    "(`requests_per_minute`, `tokens_per_minute`, `requests_at_once`, `context_tokens`, "
    "`budget_nanodollars_per_month`; `unanswered`: no router answered in time) and whose it is "
    "(`key`, `project`, `tenant`).",
    ["limit", "subject"],
)
HTTP_REQUESTS = Counter(
    "baton_http_requests_total",
    "HTTP requests that ended, refused ones too, by route (`unknown`: there is none) and status.",
    ["route", "status"],
)
HTTP_DURATION = Histogram(
    "baton_http_duration_seconds",
    "From the head of an HTTP request to the end of its answer.",
    ["route"],
    buckets=call_buckets(),
)
WAITING = Gauge("baton_frontend_requests_waiting", "Requests that wait for a worker now.")
WORKER_WAIT = Histogram(
    "baton_frontend_worker_wait_seconds",
    "How long requests waited for a worker that could take them: `woken` by one that appeared, "
    "`timed_out`, or `left` (cancelled, or at their deadline).",
    ["outcome"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
QUEUE_SECONDS = Histogram(
    "baton_frontend_router_queue_seconds",
    "How long routers let requests wait for their turn before they placed them; of those that "
    "waited.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600),
)
PLACEMENT_RETRIES = Counter(
    "baton_frontend_placement_retries_total", "Placements after the first of a request."
)
HANDED_BACK = Counter(
    "baton_frontend_streams_handed_back_total",
    "Pieces of work for which a worker had no room, and which were placed anew.",
)
HANDED_OVER = Counter(
    "baton_frontend_streams_handed_over_total",
    "Pieces of work that a worker which was about to stop left to another one.",
)
POISON_REQUESTS = Counter(
    "baton_frontend_poison_requests_total", "Requests that two workers were lost of."
)
RANDOM_PLACEMENTS = Counter(
    "baton_frontend_random_placements_total",
    "Placements made here because no router answered, or knew a worker yet.",
)
TICKETS = Gauge("baton_frontend_tickets", "Tickets held now.")
CONNECTIONS = Gauge("baton_frontend_worker_connections", "Streams to workers that are open now.")
CONNECTIONS_LOST = Counter(
    "baton_frontend_worker_connections_lost_total", "Streams to workers that broke."
)
WORKER_STREAMS = Gauge(
    "baton_frontend_worker_streams", "Pieces of work at workers that have not ended."
)
LATE_FRAMES = Counter(
    "baton_frontend_late_frames_total", "Token entries of streams that were released."
)
PROMPT_TOKENS = Counter(
    "baton_frontend_prompt_tokens_total", "Prompt tokens of ended requests.", ["model", "adapter"]
)
CACHED_TOKENS = Counter(
    "baton_frontend_cached_tokens_total",
    "Prompt tokens found in a cache, of ended requests.",
    ["model", "adapter"],
)
OUTPUT_TOKENS = Counter(
    "baton_frontend_output_tokens_total", "Tokens given to clients.", ["model", "adapter"]
)
DURATION = Histogram(
    "gen_ai_server_request_duration_seconds",
    "From arrival to end, of requests that ran.",
    ["operation", "model"],
    buckets=_DURATION,
)
FIRST_TOKEN = Histogram(
    "gen_ai_server_time_to_first_token_seconds",
    "From the arrival of a prompt to its first token; counted when that comes.",
    ["model"],
    buckets=_DURATION,
)
PER_TOKEN = Histogram(
    "gen_ai_server_time_per_output_token_seconds",
    "Mean time between output tokens after the first, per choice.",
    ["operation", "model"],
    buckets=_PER_TOKEN,
)
PAUSED = Gauge(
    "baton_frontend_paused_requests",
    "Requests whose streams wait at workers for their clients to read",
)
PAUSES = Counter("baton_frontend_pauses_total", "Times that the streams of a request were paused.")
PAUSED_SECONDS = Counter(
    "baton_frontend_paused_seconds_total",
    "Seconds that requests' streams were paused, when they end.",
)
HTTP_CONNECTIONS = Gauge("baton_http_connections", "Connections of HTTP clients that are open.")
HTTP_REFUSED = Counter(
    "baton_http_connections_refused_total",
    "HTTP connections that were refused: there were `http.max_connections` already.",
)
SLOW_CLIENTS = Counter(
    "baton_frontend_slow_clients_total", "Clients cut because they did not read.", ["surface"]
)
MODELS = Gauge("baton_frontend_models", "Models that can be asked now.")
TOKENIZER_LOADS = Counter(
    "baton_frontend_tokenizer_loads_total",
    "Tokenizers fetched from workers: `ok`, `failed` (another worker is asked), or `refused` "
    "(damaged: its models cannot be asked).",
    ["outcome"],
)
