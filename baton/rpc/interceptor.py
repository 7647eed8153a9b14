"""What every call of a server gets: its caller's trace, its request's id, errors with details.

The work is per call: streams pass their messages through nothing of this.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from opentelemetry import context as otel

from baton.errors import BatonError, Reason, abort
from baton.telemetry import tracing
from baton.telemetry.context import request_id
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Gauge

log = get_logger(__name__)

CALLS = Gauge("baton_rpc_calls", "Calls that are being served", ["method"])

MAX_REQUEST_ID = 128
REQUEST_ID_KEY = "x-request-id"
TRACEPARENT_KEY = "traceparent"

Behavior = Callable[[Any, Any], Awaitable[Any]]


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in stubs only
    """Wraps each handler once per call; see the module's text."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:  # no such method: grpc answers UNIMPLEMENTED
            return None
        metadata: Any = handler_call_details.invocation_metadata
        found = {key: value for key, value in metadata if key in (REQUEST_ID_KEY, TRACEPARENT_KEY)}
        return _wrap(handler, _Caller(handler_call_details.method, found))


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


def _wrap(handler: Any, caller: _Caller) -> Any:
    if handler.response_streaming:
        inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        guarded = _guard(_writing(inner) if inspect.isasyncgenfunction(inner) else inner, caller)
    else:
        inner = handler.stream_unary if handler.request_streaming else handler.unary_unary
        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        guarded = _guard(inner, caller)
    return make(guarded, handler.request_deserializer, handler.response_serializer)


def _guard(inner: Behavior, caller: _Caller) -> Behavior:
    async def guarded(request: Any, context: Any) -> Any:
        caller.enter()
        active = CALLS.labels(caller.method)
        active.inc()
        try:
            return await inner(request, context)
        except BatonError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise  # the handler ended the call itself
        except Exception:
            log.exception("handler failed", method=caller.method)
            await abort(context, BatonError(Reason.INTERNAL, "internal error"))
        finally:
            active.dec()

    return guarded


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
