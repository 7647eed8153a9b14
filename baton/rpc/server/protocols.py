"""What a call's context needs of its stream, and both of their connection."""

import asyncio
from typing import Protocol, TypeVar

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.server.answer import CallResponse
from baton.rpc.server.head import CallHead
from baton.rpc.transport.inbox import Inbox

CallT = TypeVar("CallT", contravariant=True)


class CallerConnection(Protocol):
    """What a handler is told of its call's connection."""

    loop: asyncio.AbstractEventLoop
    peer: str
    """The client's address, as `ipv4:127.0.0.1:40000`."""
    retired: bool
    """The client was told to open new calls on another one."""


class HandlerStream(Protocol):
    """What a handler's context needs of its call's stream."""

    answer: CallResponse
    inbox: Inbox
    head: CallHead
    deadline: float | None
    """Of the loop's clock; None: there is none."""
    failure: Exception | None
    """Why the handler was cancelled from outside; None: it was not."""

    @property
    def connection(self) -> CallerConnection:
        """The connection of the stream."""
        ...

    def deliver(self) -> None:
        """Give the handler's callback what waits; what it raises ends the call."""
        ...


class StreamConnection(CallerConnection, Protocol[CallT]):
    """What a call's stream needs of its connection."""

    http2: Http2Connection
    stall_seconds: float
    """A client that does not read for so long is cut."""

    def begin(self, call: CallT) -> "asyncio.Task[None]":
        """Run a call's handler in a task."""
        ...

    def keep_partial(self, call: CallT, size: int, change: int) -> bool:
        """Count what is kept of messages that are not whole; return whether it is not too much."""
        ...

    def forget(self, call: CallT) -> None:
        """Hear that a call's client was told everything, or is gone."""
        ...
