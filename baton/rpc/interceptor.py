"""What every call of a server gets: limits, its caller's trace and request id, errors with details,
and counters at its end.

The work is per call: streams pass their messages through nothing of this.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from opentelemetry import context as otel

from baton.errors import BatonError, Reason, abort
from baton.telemetry import tracing
from baton.telemetry.context import request_id
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter, Gauge, Histogram, call_buckets

log = get_logger(__name__)

ACTIVE = Gauge("baton_rpc_calls_active", "Calls that are being served.", ["method"])
CALLS = Counter(
    "baton_rpc_calls_total",
    "Calls that ended, refused ones too, by method (`unknown`: there is none of that name) and "
    "gRPC status code.",
    ["method", "code"],
)
DURATION = Histogram(
    "baton_rpc_duration_seconds",
    "From a call's arrival to its end; of a stream that lives as long as its client, that life.",
    ["method"],
    buckets=call_buckets(),
)

UNKNOWN_METHOD = "unknown"
MAX_REQUEST_ID = 128
REQUEST_ID_KEY = "x-request-id"
TRACEPARENT_KEY = "traceparent"
_OVERLOAD_RETRY_SECONDS = 1.0
_HEALTH = "/grpc.health.v1.Health/"

Behavior = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended."""

    method: str
    """`/package.Service/Method`, or `unknown`."""
    code: grpc.StatusCode
    error: BatonError | None
    """What its caller was told; None where it succeeded."""


OnCallEnd = Callable[[CallEnd], None]
"""Called in the context of the task that served the call: sees its request id."""


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in stubs only
    """Wraps each handler once per call. One per server, on its event loop.

    Args:
        max_concurrent: calls served at once; more are refused with OVERLOADED, health checks never.
        max_message_bytes: the server's limit, which refusals name.
        on_end: called once for each call, whatever ended it.
    """

    def __init__(
        self, max_concurrent: int, max_message_bytes: int, on_end: OnCallEnd | None = None
    ) -> None:
        self._max_concurrent = max_concurrent
        self._max_message_bytes = max_message_bytes
        self._on_end = on_end
        self._active = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        metadata: Any = handler_call_details.invocation_metadata
        found = {key: value for key, value in metadata if key in (REQUEST_ID_KEY, TRACEPARENT_KEY)}
        method: Any = handler_call_details.method
        if handler is None:
            caller = _Caller(UNKNOWN_METHOD, found)
            return grpc.stream_unary_rpc_method_handler(self._guard(_refuse_method(method), caller))
        return self._wrap(handler, _Caller(method, found))

    def _wrap(self, handler: Any, caller: "_Caller") -> Any:
        """Return a handler that guards this one.

        One that takes a single message becomes one that reads it from a stream, which is the same
        on the wire: gRPC calls it also where that message is too long to be received.
        """
        if handler.response_streaming:
            inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
            if inspect.isasyncgenfunction(inner):
                inner = _writing(inner)
            make = grpc.stream_stream_rpc_method_handler
        else:
            inner = handler.stream_unary if handler.request_streaming else handler.unary_unary
            make = grpc.stream_unary_rpc_method_handler
        deserializer = handler.request_deserializer
        if not handler.request_streaming:
            inner = self._reading(inner, deserializer)
            deserializer = None
        return make(self._guard(inner, caller), deserializer, handler.response_serializer)

    def _reading(self, inner: Behavior, deserializer: Callable[[bytes], Any] | None) -> Behavior:
        async def reading(_: Any, context: Any) -> Any:
            data = await context.read()
            if data is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                # Too long a message ends the call with RESOURCE_EXHAUSTED, which is not told here.
                raise BatonError(
                    Reason.BODY_TOO_LARGE,
                    f"no message came, or one of more than {self._max_message_bytes} bytes",
                )
            if deserializer is not None:
                try:
                    data = deserializer(data)
                except DecodeError as error:
                    raise BatonError(
                        Reason.MALFORMED_BODY, "the message is none of this method's"
                    ) from error
            return await inner(data, context)

        return reading

    def _guard(self, inner: Behavior, caller: "_Caller") -> Behavior:
        async def guarded(request: Any, context: Any) -> Any:
            began = monotonic()
            caller.enter()
            active = ACTIVE.labels(caller.method)
            active.inc()
            self._active += 1
            left: float | None = context.time_remaining()
            error: BatonError | None = None
            try:
                if self._active > self._max_concurrent and not caller.method.startswith(_HEALTH):
                    raise BatonError(
                        Reason.OVERLOADED,
                        f"{self._max_concurrent} calls are being served already",
                        retry_after=_OVERLOAD_RETRY_SECONDS,
                    )
                return await inner(request, context)
            except BatonError as raised:
                error = raised
                await abort(context, raised)
            except grpc.aio.AbortError:  # the handler ended the call itself
                trailers = context.trailing_metadata()
                error = BatonError.from_trailers(trailers, context.code(), context.details())
                raise
            except asyncio.CancelledError:
                error = _cancelled(context, left) if error is None else error
                raise
            except Exception:
                log.exception("handler failed", method=caller.method)
                error = BatonError(Reason.INTERNAL, "internal error")
                await abort(context, error)
            finally:
                self._active -= 1
                active.dec()
                self._record(caller.method, error, monotonic() - began)

        return guarded

    def _record(self, method: str, error: BatonError | None, seconds: float) -> None:
        code = grpc.StatusCode.OK if error is None else error.code
        CALLS.labels(method, code.name).inc()
        DURATION.labels(method).observe(seconds)
        if self._on_end is not None:
            self._on_end(CallEnd(method, code, error))


class _Caller:
    """Who called what: entered by the task that runs the handler, which ends with the call."""

    def __init__(self, method: str, metadata: dict[str, Any]) -> None:
        self.method = method
        self._request_id = clean_request_id(metadata.get(REQUEST_ID_KEY, ""))
        self._traceparent = metadata.get(TRACEPARENT_KEY, "")

    def enter(self) -> None:
        if self._request_id:
            request_id.set(self._request_id)
        if self._traceparent:
            otel.attach(tracing.extract(self._traceparent))


def clean_request_id(text: str) -> str:
    """A caller's request id if it may be used as such, else an empty string.

    It is written to logs and metadata, hence at most 128 printable ASCII characters, no spaces.
    """
    usable = 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable()
    return text if usable and " " not in text else ""


def _refuse_method(method: str) -> Behavior:
    async def refuse(_: Any, __: Any) -> Any:
        raise BatonError(Reason.UNIMPLEMENTED, f"there is no method {method[:200]}")

    return refuse


def _cancelled(context: Any, given: float | None) -> BatonError:
    """Return why a call was cancelled that had so many seconds.

    A client whose deadline is over cancels too, and its clock may be ahead of ours by what the
    call took to get here and by the rounding of a deadline on the wire.
    """
    left: float | None = context.time_remaining()
    if given is not None and left is not None and left <= 0.05 + 0.01 * given:
        return BatonError(Reason.DEADLINE, "the call's deadline is over")
    return BatonError(Reason.CANCELLED, "the client is gone")


def _writing(inner: Callable[[Any, Any], AsyncIterator[Any]]) -> Behavior:
    """A handler that yields, as one that writes: what grpc.aio does itself, plus closing it."""

    async def writing(request: Any, context: Any) -> None:
        responses: Any = inner(request, context)
        try:
            async for response in responses:
                await context.write(response)
        finally:
            await responses.aclose()

    return writing
