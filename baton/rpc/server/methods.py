"""The methods that a server serves, by path, as gRPC's generated code registers them."""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor

from baton.errors import BatonError, Reason
from baton.rpc.server.call import ServerCall
from baton.rpc.wire.fields import has_more_fields
from baton.rpc.wire.messages import Data, Parts

UNKNOWN_METHOD = "unknown"
_LONG_BYTES = 64 * 1024
"""Shorter messages are parsed within a few milliseconds, whatever they contain."""


@dataclass(frozen=True, slots=True)
class Method:
    """How to serve calls of one method."""

    name: str
    """`/package.Service/Method`, or `unknown`, for messages and metrics."""
    one_request: bool
    """Whether the client sends exactly one message."""
    deserialize: Callable[[Data], Any]
    serialize: Callable[[Any], bytes | Parts]
    serve: Callable[[ServerCall], Awaitable[None]]
    """Runs the handler of a call; a unary request has already arrived."""


@dataclass(frozen=True, slots=True)
class _Details:
    """Details by which generic handlers look up a method."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class MethodTable:
    """Collects the methods that `add_…Servicer_to_server` registers, and finds them by path.

    Args:
        max_fields: most fields in a long message from a client; None: any number.
    """

    def __init__(self, max_fields: int | None = None) -> None:
        self._max_fields = max_fields
        self._methods: dict[str, Method] = {}
        self._generic: list[grpc.GenericRpcHandler[Any, Any]] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Add handlers, as `grpc.aio.Server` does."""
        self._generic.extend(handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Any]
    ) -> None:
        """Add methods of a service, as `grpc.aio.Server` does."""
        for name, handler in method_handlers.items():
            path = f"/{service_name}/{name}"
            self._methods[path] = self._method(path, handler)

    def find(self, path: str) -> Method | None:
        """Return the method at a path, None if there is none."""
        method = self._methods.get(path)
        if method is not None:
            return method
        for generic in self._generic:
            handler = generic.service(_Details(path))  # type: ignore[arg-type]  # it is a tuple there
            if handler is not None:
                method = self._methods[path] = self._method(path, handler)
                return method
        return None

    def _method(self, path: str, handler: Any) -> Method:
        if handler.response_streaming:
            inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
            serve = _yielding(inner) if inspect.isasyncgenfunction(inner) else _writing(inner)
        else:
            inner = handler.stream_unary if handler.request_streaming else handler.unary_unary
            serve = _returning(inner)
        deserialize = handler.request_deserializer or _as_it_is
        if self._max_fields is not None and deserialize is not _as_it_is:
            deserialize = _bounded(deserialize, self._max_fields)
        return Method(
            path,
            not handler.request_streaming,
            deserialize,
            handler.response_serializer or _as_it_is,
            serve,
        )


def unknown_method(path: str) -> Method:
    """Return a method that rejects its calls with UNIMPLEMENTED: there is none at `path`."""

    async def refuse(call: ServerCall) -> None:  # noqa: ARG001 - methods take one
        raise BatonError(Reason.UNIMPLEMENTED, f"method {path[:200]} does not exist")

    # As one that takes a message: an answer that comes before it has sent one is to grpc.aio's
    # client a failure of its own.
    return Method(UNKNOWN_METHOD, True, _as_it_is, _as_it_is, refuse)


def _bounded(parse: Callable[[Data], Any], most: int) -> Callable[[Data], Any]:
    """Return a parser of the same message type that rejects a long message with too many fields."""
    message: Descriptor = parse.__self__.DESCRIPTOR  # type: ignore[attr-defined]  # FromString's

    def parse_bounded(data: Data) -> Any:
        if len(data) > _LONG_BYTES and has_more_fields(data, message, most):
            what = f"the message has more than {most} fields: split the request"
            raise BatonError(Reason.BODY_TOO_LARGE, what)
        return parse(data)

    return parse_bounded


def _as_it_is(data: Data) -> bytes:
    return bytes(data)


def _returning(inner: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[ServerCall], Any]:
    async def serve(call: ServerCall) -> None:
        call.send(await inner(call.request(), call))

    return serve


def _writing(inner: Callable[[Any, Any], Awaitable[None]]) -> Callable[[ServerCall], Any]:
    async def serve(call: ServerCall) -> None:
        await inner(call.request(), call)

    return serve


def _yielding(
    inner: Callable[[Any, Any], AsyncGenerator[Any]],
) -> Callable[[ServerCall], Any]:
    async def serve(call: ServerCall) -> None:
        responses = inner(call.request(), call)
        try:
            async for response in responses:
                await call.write(response)
        finally:
            await responses.aclose()

    return serve
