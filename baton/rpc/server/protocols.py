"""Interfaces that a call's context requires of its stream, and both of their connection."""

import asyncio
from typing import Protocol, TypeVar

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.server.answer import CallResponse
from baton.rpc.server.head import CallHead
from baton.rpc.transport.inbox import Inbox

CallT = TypeVar("CallT", contravariant=True)


class CallerConnection(Protocol):
    """What a handler can learn about its call's connection."""

    loop: asyncio.AbstractEventLoop
    peer: str
    """The client's address, as `ipv4:127.0.0.1:40000`."""
    retired: bool
    """Whether the client was asked to open new calls on another connection."""


class HandlerStream(Protocol):
    """What a handler's context needs from its call's stream."""

    answer: CallResponse
    inbox: Inbox
    head: CallHead
    deadline: float | None
    """Deadline on the loop's clock; None: there is none."""
    failure: Exception | None
    """Why the handler was cancelled from outside; None: it was not."""

    @property
    def connection(self) -> CallerConnection:
        """The connection of the stream."""
        ...

    def deliver(self) -> None:
        """Pass waiting messages to the handler's callback; what it raises ends the call."""
        ...


class StreamConnection(CallerConnection, Protocol[CallT]):
    """What a call's stream needs from its connection."""

    http2: Http2Connection
    stall_seconds: float
    """A client that does not read for this long is disconnected."""

    def begin(self, call: CallT) -> "asyncio.Task[None]":
        """Run a call's handler in a task."""
        ...

    def keep_partial(self, call: CallT, size: int, change: int) -> bool:
        """Count the bytes buffered for incomplete messages; return whether they are within the
        limit."""
        ...

    def forget(self, call: CallT) -> None:
        """Remove a call whose client has received everything, or has disconnected."""
        ...
