"""A streaming call per request: one Generate or Chat each."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, Protocol

import grpc

from baton.client.errors import StreamClosedError, client_error
from baton.request.stream_events import Event, event_from_proto


class End(Enum):
    """Marks the end of the events."""

    END = "end"
    """The call has ended with status OK."""


Read = Event | Literal[End.END] | None
"""An event; None for one that only a later release knows."""


class AsyncCall(Protocol):
    """Source of the events of an asyncio stream."""

    async def read(self) -> Read:
        """Return the next event, `End`, or None for an event that only a later release knows.

        Raises:
            BatonClientError: the call failed, or was cancelled on this side.
        """
        ...

    def cancel(self) -> None:
        """Cancel the call; a reader gets StreamClosedError."""
        ...


class BlockingCall(Protocol):
    """Source of the events of a blocking stream, read by one thread."""

    def read(self) -> Read:
        """Return or raise as an `AsyncCall` does."""
        ...

    def cancel(self) -> None:
        """Cancel the call, from any thread."""
        ...


class AsyncPlainCall:
    """A call of grpc.aio."""

    def __init__(self, call: Any, request_id: str, on_end: Callable[[], None]) -> None:
        """Read `call`; `on_end` is called once, when it has ended."""
        self._call = call
        self._request_id = request_id
        self._cancelled = False
        call.add_done_callback(lambda _: on_end())

    async def read(self) -> Read:
        try:
            response = await self._call.read()
        except grpc.RpcError as failure:
            raise client_error(failure, self._request_id) from failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled and not (task and task.cancelling()):
                # This task was not cancelled: another one closed the stream.
                raise StreamClosedError("the stream is closed") from None
            raise
        if response is grpc.aio.EOF:  # type: ignore[attr-defined]  # missing in the stubs
            return End.END
        return event_from_proto(response)

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()


class BlockingPlainCall:
    """A call of gRPC's synchronous API."""

    def __init__(self, call: Any, request_id: str, on_end: Callable[[], None]) -> None:
        """Read `call`; `on_end` is called once, when it has ended, on any thread."""
        self._call = call
        self._request_id = request_id
        self._cancelled = False
        if not call.add_callback(on_end):
            on_end()  # it has already ended

    def read(self) -> Read:
        try:
            response = next(self._call)
        except StopIteration:
            return End.END
        except grpc.RpcError as failure:
            if self._cancelled:
                raise StreamClosedError("the stream is closed") from failure
            raise client_error(failure, self._request_id) from failure
        return event_from_proto(response)

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()
