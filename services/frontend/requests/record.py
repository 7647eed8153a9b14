"""The log line and the metrics of each request when it ends, for both APIs.

Each request has one `RequestRecord`, created where the request arrives. The code that serves the
request fills the record in, and `finish` is called once for any outcome.
"""

from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Literal

from baton.errors import BatonError
from baton.telemetry.logs import get_logger
from baton.tenancy.directory.principal import NOBODY
from baton.tenancy.limits.limit_set import LimitSet
from baton.usage.path import RequestPath
from baton.usage.record import UsageRecord
from services.frontend.metrics import (
    CACHED_TOKENS,
    DURATION,
    HTTP_DURATION,
    HTTP_REQUESTS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    REQUESTS,
)

Surface = Literal["http", "grpc", "background", "batch"]
UNKNOWN = "unknown"
OPERATOR = ""
"""The operation of health and metrics. It is not a client's request, so it is recorded only if it
fails."""
_MAX_NAME = 200
_NO_PATH = RequestPath()
_PATH_FIELDS = tuple(
    name for name in RequestPath.__struct_fields__ if name != "router_queue_seconds"
)

log = get_logger(__name__)


class RequestRecord:
    """One request, from its arrival to its end. Owned by the task that serves it."""

    __slots__ = (
        "_last_first_token",
        "adapter",
        "began",
        "cached_tokens",
        "error",
        "first_token_seconds",
        "limits",
        "model",
        "on_usage",
        "operation",
        "output_tokens",
        "path",
        "principal",
        "prompt_tokens",
        "queued_seconds",
        "route",
        "rule",
        "served_model",
        "surface",
        "trace_id",
        "usage_id",
    )

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self.began = monotonic()
        self.operation = UNKNOWN
        """`chat`, `text_completion`, `tokenize`, `list_models`, `administration`; unknown for
        unknown paths."""
        self.route = UNKNOWN
        """HTTP: the template of the path, if it is known."""
        self.principal = NOBODY
        """The caller, once it is known; before, a principal without permissions."""
        self.limits: LimitSet | None = None
        """The limits of the caller's key, reported with each response; None: there are none."""
        self.model = ""
        """The model's name as sent by the client."""
        self.served_model = ""
        """The name once the model is known to exist: metrics carry only such names."""
        self.adapter = ""
        """The requested adapter, once it is known to exist; empty: the model itself."""
        self.rule: str | None = None
        """The rule of `auto` that matched; empty: none did; None: the client named the model."""
        self.error: BatonError | None = None
        """The error that the client received, or why it could not receive one; None: the request
        succeeded."""
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.first_token_seconds: float | None = None
        """From arrival to the first token, of any prompt and choice."""
        self._last_first_token = 0.0
        self.queued_seconds = 0.0
        """Seconds in routers' queues; for several prompts, the longest."""
        self.path = _NO_PATH
        """Where it ran; of several prompts, the one whose first token came last."""
        self.trace_id = ""
        self.usage_id = ""
        """ID of its usage record, if the request may continue at another frontend: all of them end
        the same record. Empty: a new one."""
        self.on_usage: Callable[[UsageRecord], None] | None = None
        """Receives its usage records, which are then not recorded here: whoever stores the result
        does that. None: they are recorded when it ends."""

    def name_model(self, model: str) -> None:
        """Set the model that the client names, before it is known to exist."""
        self.model = model if len(model) <= _MAX_NAME else model[:_MAX_NAME] + "…"

    @property
    def named(self) -> str:
        """The name of the model or adapter that answers; empty: it is not known."""
        return self.adapter or self.served_model

    def add(
        self,
        prompt_tokens: int,
        cached_tokens: int,
        output_tokens: int,
        first_token_seconds: float | None,
        queued_seconds: float,
        path: RequestPath,
    ) -> None:
        """Add the usage, the times and the path of one prompt."""
        if self.path is _NO_PATH or (first_token_seconds or inf) >= self._last_first_token:
            self.path, self._last_first_token = path, first_token_seconds or inf
        self.queued_seconds = max(self.queued_seconds, queued_seconds)
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.output_tokens += output_tokens
        if self.first_token_seconds is None:
            self.first_token_seconds = first_token_seconds
        elif first_token_seconds is not None:
            self.first_token_seconds = min(self.first_token_seconds, first_token_seconds)


_current: ContextVar[RequestRecord] = ContextVar("baton_request_record")


def begin(surface: Surface) -> RequestRecord:
    """Return a new record, and make it the current task's."""
    record = RequestRecord(surface)
    _current.set(record)
    return record


def current() -> RequestRecord:
    """Return the record of the request that the current task serves.

    Raises:
        LookupError: the task serves no request.
    """
    return _current.get()


def finish(record: RequestRecord, status: str) -> None:
    """Count an ended request and write its `request.end` line. Call it once.

    Args:
        record: the record of the request.
        status: the status that the client received: `200`, `INVALID_ARGUMENT`.
    """
    seconds = monotonic() - record.began
    if record.surface == "http":
        HTTP_REQUESTS.labels(record.route, status).inc()
        HTTP_DURATION.labels(record.route).observe(seconds)
    if record.operation == OPERATOR and record.error is None:
        return
    operation, model, error = record.operation or UNKNOWN, record.served_model, record.error
    reason, adapter = "ok" if error is None else error.reason.name, record.adapter
    who = record.principal
    REQUESTS.labels(record.surface, operation, model, adapter, reason).inc()
    if record.prompt_tokens:  # the request ran
        DURATION.labels(operation, model).observe(seconds)
        PROMPT_TOKENS.labels(model, adapter).inc(record.prompt_tokens)
        CACHED_TOKENS.labels(model, adapter).inc(record.cached_tokens)
        OUTPUT_TOKENS.labels(model, adapter).inc(record.output_tokens)
    log.info(
        "request.end",
        surface=record.surface,
        operation=operation,
        tenant=who.tenant.id,
        **({"project": who.project.id, "key": who.key.id} if who.key.id else {}),
        model=record.model,
        **({"adapter": adapter} if adapter else {}),
        **({"rule": record.rule} if record.rule else {}),
        **({"answered_by": record.named} if _another_answered(record) else {}),
        status=status,
        reason=reason,
        field=None if error is None else error.field,
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        output_tokens=record.output_tokens,
        queued_seconds=_rounded(record.queued_seconds),
        ttft_seconds=_rounded(record.first_token_seconds),
        seconds=_rounded(seconds),
        **_known(record.path),
        **({"trace_id": record.trace_id} if record.trace_id else {}),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _known(path: RequestPath) -> dict[str, str | int | float]:
    """Return the fields of a path that are known, under their names in usage records.

    `queued_seconds` of the line is its time in routers' queues.
    """
    return {
        name: value for name in _PATH_FIELDS if (value := getattr(path, name)) not in (None, "")
    }


def _another_answered(record: RequestRecord) -> bool:
    """Return whether what answered has another name than the client sent."""
    return record.error is None and record.named not in ("", record.model)
