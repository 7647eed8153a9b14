"""Per-call services of a server: limits, the caller's trace and request ID, errors with details,
and counters at the end.

The work is per call: messages of streams do not pass through this module.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import grpc
from opentelemetry import context as otel

from baton.errors import BatonError, Reason, no_memory
from baton.rpc.request_id import clean_request_id
from baton.rpc.server.call import CallAbortedError
from baton.rpc.server.call_stream import CallStream
from baton.telemetry import tracing
from baton.telemetry.context import request_id
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter, Gauge, Histogram, call_buckets

log = get_logger(__name__)

ACTIVE = Gauge("baton_rpc_calls_active", "Calls in progress.", ["method"])
CALLS = Counter(
    "baton_rpc_calls_total",
    "Calls that ended, rejected ones included, by method (`unknown`: no such method) and gRPC "
    "status code.",
    ["method", "code"],
)
DURATION = Histogram(
    "baton_rpc_duration_seconds",
    "Duration of calls; of a long-lived stream, its lifetime.",
    ["method"],
    buckets=call_buckets(),
)

_OVERLOAD_RETRY_SECONDS = 1.0
_HEALTH = "/grpc.health.v1.Health/"


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended."""

    method: str
    """`/package.Service/Method`, or `unknown`."""
    code: grpc.StatusCode
    error: BatonError | None
    """Error that the caller received; None if the call succeeded."""


OnCallEnd = Callable[[CallEnd], None]
"""Called in the context of the task that served the call, so that its request ID is set."""


class CallGuard:
    """Runs each call's handler. One per server, on its event loop.

    Args:
        max_concurrent: concurrent calls; more are rejected with OVERLOADED. Health checks are
            counted separately, so they are served while other calls are rejected. As many may wait
            for their message; beyond that, the one that has waited longest is rejected.
        on_end: called once for each call, however it ended.
    """

    def __init__(self, max_concurrent: int, on_end: OnCallEnd | None = None) -> None:
        self.idle = asyncio.Event()
        """Set while no call is being served."""
        self.idle.set()
        self._max_concurrent = max_concurrent
        self._on_end = on_end
        self._active = 0
        self._active_health = 0
        self._waiting: dict[CallStream, None] = {}
        """Calls that wait for the client's message, oldest first."""

    def wait(self, stream: CallStream) -> None:
        """Register a call that cannot begin yet.

        A client may leave a call in this state for half a minute, on each of its streams: the
        number of these calls is bounded for all clients together. Other calls wait for a moment
        only.
        """
        self._waiting[stream] = None
        if len(self._waiting) > self._max_concurrent:
            oldest = next(iter(self._waiting))
            many = f"more than {self._max_concurrent} calls are waiting for their request message"
            oldest.cancel(BatonError(Reason.OVERLOADED, many, retry_after=_OVERLOAD_RETRY_SECONDS))

    def wait_no_more(self, stream: CallStream) -> None:
        """Remove a call that begins, or whose client has disconnected. Idempotent."""
        self._waiting.pop(stream, None)

    async def run(self, stream: CallStream) -> None:
        """Serve a call to its end; in a separate task and context."""
        began, name, head = monotonic(), stream.method.name, stream.head
        if head.caller_id and (caller_id := clean_request_id(head.caller_id)):
            request_id.set(caller_id)
        if head.traceparent:
            otel.attach(tracing.extract(head.traceparent))
        active = ACTIVE.labels(name)
        active.inc()
        self._active += 1
        health = name.startswith(_HEALTH)
        self._active_health += health
        self.idle.clear()
        error: BatonError | None = None
        try:
            if stream.failure is not None:
                raise stream.failure
            others = self._active - self._active_health
            if (self._active_health if health else others) > self._max_concurrent:
                raise BatonError(
                    Reason.OVERLOADED,
                    f"{self._max_concurrent} calls are already running; retry later",
                    retry_after=_OVERLOAD_RETRY_SECONDS,
                )
            await stream.method.serve(stream.call)
            stream.succeed()
        except BatonError as raised:
            error = raised
        except CallAbortedError:
            call = stream.call
            stream.end(call.code().value[0], call.details(), call.trailing_metadata())
            error = BatonError.from_trailers(call.trailing_metadata(), call.code(), call.details())
        except asyncio.CancelledError:
            if stream.failure is None:  # only the end of the loop cancels it so
                raise
            error = _error_of(stream.failure, name)
        except Exception as bug:  # noqa: BLE001 - it is logged, and its caller told
            error = _error_of(stream.failure or bug, name)
        finally:
            stream.returned()
            if error is not None:
                stream.fail(error)
            self._active -= 1
            self._active_health -= health
            active.dec()
            if not self._active:
                self.idle.set()
            self._record(name, error, monotonic() - began)

    def _record(self, method: str, error: BatonError | None, seconds: float) -> None:
        code = grpc.StatusCode.OK if error is None else error.code
        CALLS.labels(method, code.name).inc()
        DURATION.labels(method).observe(seconds)
        if self._on_end is not None:
            self._on_end(CallEnd(method, code, error))


def _error_of(failure: Exception, method: str) -> BatonError:
    """Return the error for the client; details that it must not learn are logged."""
    if isinstance(failure, BatonError):
        return failure
    if isinstance(failure, MemoryError):
        log.warning("rpc.call.no_memory", method=method)
        return no_memory()
    log.error("rpc.handler.failed", method=method, exc_info=failure)
    return BatonError(Reason.INTERNAL, "internal error")
