"""The frontend's metrics."""

from baton.telemetry.metrics import Counter, Gauge, Histogram, call_buckets

_DURATION = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)

ACTIVE = Gauge("baton_frontend_requests_active", "Requests in progress.")
BACKGROUND = Gauge(
    "baton_frontend_background_responses", "Responses that run in the background at this frontend."
)
LINE_ROOM = Gauge(
    "baton_batch_line_room",
    "Lines of batches that this frontend may run at once, by its router and batches.max_running.",
)
LINES_RUNNING = Gauge("baton_batch_lines_running", "Lines of batches that run at this frontend.")
LINES_ENDED = Counter(
    "baton_batch_lines_total",
    "Lines of batches that ended at this frontend, by result: `answered`, `failed`; `returned`: "
    "without a result, to run again; `lost`: another frontend has the line.",
    ["result"],
)
BATCHES_LATE = Gauge(
    "baton_batch_late",
    "Batches of all frontends that will end after their completion window, although all of their "
    "lines run in the class interactive.",
)
LATEST_BATCH = Gauge(
    "baton_batch_late_seconds", "Seconds by which the latest of these batches will be late."
)
COMPACTIONS = Counter(
    "baton_frontend_summaries_total",
    "Summaries of stored conversations that ended at this frontend, by reason (`ok`: it was "
    "written; or a reason of the error table: `OVERLOADED` if too many were being written).",
    ["reason"],
)
REQUESTS = Counter(
    "baton_frontend_requests_total",
    "Requests that ended, rejected ones included, by surface (`http`, `grpc`; `background`: the "
    "run of a response whose HTTP request ended earlier; `batch`: a line of one), operation "
    "(`chat`, `text_completion`, `tokenize`, `list_models`, `administration`, `unknown`), model "
    "(empty: it does not exist), "
    "adapter (empty: the model itself) and reason (`ok` or a reason of the error table).",
    ["surface", "operation", "model", "adapter", "reason"],
)
LIMIT_REFUSALS = Counter(
    "baton_frontend_limit_refusals_total",
    "Requests rejected by a limit, by limit (`requests_per_minute`, `tokens_per_minute`, "
    "`requests_at_once`, `context_tokens`, `budget_nanodollars_per_month`; `unanswered`: no "
    "router responded in time) and by the limit's owner (`key`, `project`, `tenant`).",
    ["limit", "subject"],
)
HTTP_REQUESTS = Counter(
    "baton_http_requests_total",
    "HTTP requests that ended, rejected ones included, by route (`unknown`: no such route) and "
    "status.",
    ["route", "status"],
)
HTTP_DURATION = Histogram(
    "baton_http_duration_seconds",
    "Time from the head of an HTTP request to the end of its response.",
    ["route"],
    buckets=call_buckets(),
)
WAITING = Gauge("baton_frontend_requests_waiting", "Requests that wait for a worker.")
WORKER_WAIT = Histogram(
    "baton_frontend_worker_wait_seconds",
    "Time that requests waited for an available worker, by outcome: `woken` (one appeared), "
    "`timed_out`, or `left` (cancelled or past the deadline).",
    ["outcome"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
QUEUE_SECONDS = Histogram(
    "baton_frontend_router_queue_seconds",
    "Time that requests waited in a router's queue before placement; only those that waited.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600),
)
PLACEMENT_RETRIES = Counter(
    "baton_frontend_placement_retries_total", "Placements of a request after the first."
)
HANDED_BACK = Counter(
    "baton_frontend_streams_handed_back_total",
    "Work that a worker handed back because it was full; the frontend placed it again.",
)
HANDED_OVER = Counter(
    "baton_frontend_streams_handed_over_total",
    "Work that a draining worker handed over to another worker.",
)
POISON_REQUESTS = Counter(
    "baton_frontend_poison_requests_total", "Requests during which two workers were lost."
)
RANDOM_PLACEMENTS = Counter(
    "baton_frontend_random_placements_total",
    "Random placements because no router responded or knew a worker.",
)
TICKETS = Gauge("baton_frontend_tickets", "Router tickets held.")
CONNECTIONS = Gauge("baton_frontend_worker_connections", "Open streams to workers.")
CONNECTIONS_LOST = Counter(
    "baton_frontend_worker_connections_lost_total", "Streams to workers that broke."
)
WORKER_STREAMS = Gauge("baton_frontend_worker_streams", "Work in progress on workers.")
LATE_FRAMES = Counter(
    "baton_frontend_late_frames_total",
    "Token entries received for streams that were already released.",
)
KEEPS = Counter(
    "baton_frontend_kept_requests_total",
    "Ended requests sent to a router to be kept, by kind: `failed`, `slow`, `sampled`; "
    "`no_router`: none was connected.",
    ["kind"],
)
PROMPT_TOKENS = Counter(
    "baton_frontend_prompt_tokens_total",
    "Prompt tokens of requests that ended.",
    ["model", "adapter"],
)
CACHED_TOKENS = Counter(
    "baton_frontend_cached_tokens_total",
    "Prompt tokens found in a cache, of requests that ended.",
    ["model", "adapter"],
)
OUTPUT_TOKENS = Counter(
    "baton_frontend_output_tokens_total", "Output tokens sent to clients.", ["model", "adapter"]
)
TEAM_REQUESTS = Counter(
    "baton_team_requests_total",
    "Requests that ran, of the `teams.top` tenants and projects that use most, by reason (`ok` or "
    "a reason of the error table); others have `other` as tenant and project.",
    ["tenant", "project", "reason"],
)
TEAM_TOKENS = Counter(
    "baton_team_tokens_total",
    "Tokens of these requests, by kind: `prompt`, `cached` (of the prompt's, those found in a "
    "cache), `output`.",
    ["tenant", "project", "kind"],
)
DURATION = Histogram(
    "gen_ai_server_request_duration_seconds",
    "Time from arrival to end, of requests that ran.",
    ["operation", "model"],
    buckets=_DURATION,
)
FIRST_TOKEN = Histogram(
    "gen_ai_server_time_to_first_token_seconds",
    "Time from a prompt's arrival to its first token; observed at the first token.",
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
    "Requests paused at their workers until their clients read.",
)
PAUSES = Counter("baton_frontend_pauses_total", "Pauses of requests' streams.")
PAUSED_SECONDS = Counter(
    "baton_frontend_paused_seconds_total",
    "Total duration of such pauses; counted when a pause ends.",
)
HTTP_CONNECTIONS = Gauge("baton_http_connections", "Open HTTP client connections.")
HTTP_REFUSED = Counter(
    "baton_http_connections_refused_total",
    "HTTP connections rejected because `http.max_connections` were open.",
)
SLOW_CLIENTS = Counter(
    "baton_frontend_slow_clients_total",
    "Clients disconnected because they did not read.",
    ["surface"],
)
AUTO_CHOICES = Counter(
    "baton_frontend_auto_choices_total",
    "Requests for `auto` that a model was found for, by rule (empty: none matched) and model.",
    ["rule", "model"],
)
MODELS = Gauge("baton_frontend_models", "Models available to clients.")
TOKENIZER_LOADS = Counter(
    "baton_frontend_tokenizer_loads_total",
    "Tokenizers fetched from workers, by outcome: `ok`, `failed` (another worker is tried), or "
    "`refused` (damaged: its models are not available).",
    ["outcome"],
)
UPSTREAM_ATTEMPTS = Counter(
    "baton_provider_attempts_total",
    "Attempts at a provider's upstream, retries included, by provider and outcome (`ok`, `failed`, "
    "`rejected`: the provider is healthy and does not serve the request; `cancelled`).",
    ["provider", "outcome"],
)
UPSTREAM_RETRIES = Counter(
    "baton_provider_retries_total", "Attempts after the first of a request.", ["provider"]
)
UPSTREAM_HEDGES = Counter(
    "baton_provider_hedges_total",
    "Requests that a second upstream was asked, too, as the provider's first token was late.",
    ["provider"],
)
UPSTREAM_BREAKER_OPENED = Counter(
    "baton_provider_breaker_opened_total",
    "Times that a provider was no longer asked, after failures in a row.",
    ["provider"],
)
FALLBACKS = Counter(
    "baton_frontend_fallbacks_total",
    "Requests that another model answered, by the requested model and the one that answered.",
    ["model", "answered_by"],
)
UPSTREAM_USAGE_ESTIMATED = Counter(
    "baton_provider_usage_estimated_total",
    "Responses whose tokens were estimated: the provider reported none, or impossible numbers.",
    ["provider"],
)
