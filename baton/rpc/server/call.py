"""One call as seen by its handler: grpc.aio's context, and cheaper methods in addition."""

from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc

from baton.errors import BatonError, Reason
from baton.rpc.http2.framing.headers import Headers
from baton.rpc.server.protocols import HandlerStream
from baton.rpc.transport.inbox import END
from baton.rpc.wire.messages import Parts
from baton.rpc.wire.metadata import Metadata, read_metadata


class CallAbortedError(Exception):
    """The handler ended its call with `abort`."""


class ServerCall:
    """The context that a handler receives. Lives on the event loop.

    It has the parts of grpc.aio's servicer context that are used here and, in addition, `send`,
    `receive`, `on_pause` and `on_resume`, which cost no task switch.

    Args:
        stream: stream of the call.
        serialize: encodes a response.
        one_request: the client sends exactly one message.
    """

    __slots__ = (
        "_answer",
        "_code",
        "_details",
        "_inbox",
        "_one_request",
        "_serialize",
        "_stream",
        "_trailing",
        "on_retire",
    )

    def __init__(
        self, stream: HandlerStream, serialize: Callable[[Any], bytes | Parts], *, one_request: bool
    ) -> None:
        self._stream = stream
        self._answer = stream.answer
        self._inbox = stream.inbox
        self._serialize = serialize
        self._one_request = one_request
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: Metadata = ()
        self.on_retire: Callable[[], None] | None = None
        """Called when the client was asked to open new calls on another connection."""

    # Queried by the handler.

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the client sent."""
        return read_metadata(self._stream.head.fields)

    @property
    def fields(self) -> Headers:
        """Header fields of the request as received: metadata, and the fields of HTTP/2 and gRPC."""
        return self._stream.head.fields

    def time_remaining(self) -> float | None:
        """Return the seconds that remain until the call's deadline; None: it has none."""
        deadline = self._stream.deadline
        if deadline is None:
            return None
        return max(0.0, deadline - self._stream.connection.loop.time())

    def peer(self) -> str:
        """Return the client's address, as `ipv4:127.0.0.1:40000`."""
        return self._stream.connection.peer

    @property
    def retired(self) -> bool:
        """Whether the client was asked to open new calls on another connection; `on_retire` is not
        called after that."""
        return self._stream.connection.retired

    @property
    def failure(self) -> Exception | None:
        """Why the handler was cancelled from outside; None: it was not."""
        return self._stream.failure

    def cancelled(self) -> bool:
        """Return whether the client has disconnected, or the call was ended from outside the
        handler."""
        return self._stream.failure is not None

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    @property
    def on_pause(self) -> Callable[[], None] | None:
        """Called when the client does not read and 64 KiB wait for it."""
        return self._answer.outbox.on_pause

    @on_pause.setter
    def on_pause(self, callback: Callable[[], None] | None) -> None:
        self._answer.outbox.on_pause = callback

    @property
    def on_resume(self) -> Callable[[], None] | None:
        """Called when the client has read most of the waiting data."""
        return self._answer.outbox.on_resume

    @on_resume.setter
    def on_resume(self, callback: Callable[[], None] | None) -> None:
        self._answer.outbox.on_resume = callback

    # Response.

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send the head of the response now, with metadata."""
        self._answer.send_head(metadata)

    def send_head(self, metadata: Metadata = ()) -> None:
        """Send the head of the response with metadata, immediately; later calls do nothing."""
        self._answer.send_head(metadata)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = tuple(metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Metadata | None = None,
    ) -> NoReturn:
        """End the call with a status.

        Raises:
            CallAbortedError: always.
        """
        self._code, self._details = code, details
        if trailing_metadata is not None:
            self._trailing = tuple(trailing_metadata)
        raise CallAbortedError

    def send(self, message: Any) -> bool:
        """Send a message together with others of this iteration of the loop. Never waits.

        Args:
            message: accepted by the method's serializer.

        Returns:
            False if the client does not read, and 64 KiB or more wait for it.
        """
        return self._answer.send(self._serialize(message))

    def set_buffer(self, size: int) -> None:
        """Set the bytes that may wait for the client before the call pauses; it resumes at half of
        them."""
        self._answer.outbox.set_buffer(size)

    async def write(self, message: Any) -> None:
        """Send a message; return once the client's windows have taken most of the waiting data."""
        if not self.send(message):
            await self._answer.outbox.drain()

    # Request.

    def request(self) -> Any:
        """Return the request: the message, or an iterator of the client's messages.

        Raises:
            BatonError: MALFORMED_BODY.
        """
        if not self._one_request:
            return self.requests()
        if not self._inbox:
            raise BatonError(Reason.MALFORMED_BODY, "the call ended without a request message")
        if len(self._inbox) > 1:
            raise BatonError(Reason.MALFORMED_BODY, "the method accepts one message")
        return self._inbox.take()

    async def requests(self) -> AsyncIterator[Any]:
        """Yield the client's messages until it has ended its side."""
        while (message := await self._inbox.read()) is not END:
            yield message

    async def read(self) -> Any:
        """Return the client's next message; `grpc.aio.EOF` once it has ended its side.

        Raises:
            BatonError: MALFORMED_BODY.
        """
        return await self._inbox.read()

    def receive(self, on_message: Callable[[Any], None], on_end: Callable[[], None]) -> None:
        """Give the client's messages to a callback as they are read from the socket.

        Args:
            on_message: must not wait; what it raises ends the call.
            on_end: called once the client has ended its side.
        """
        self._inbox.give_to(on_message, on_end)
        self._inbox.deliver()

    def hold_requests(self) -> None:
        """Hold back the client's messages until `release_requests`."""
        self._inbox.held = True

    def release_requests(self) -> None:
        """Pass the messages held back, and those that follow, to `receive`'s callback."""
        self._inbox.held = False
        self._stream.deliver()
