"""One client call, as seen by its caller and by its stream."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from baton.errors import BatonError, Reason
from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.stream import NOBODY, Http2Stream
from baton.rpc.transport.inbox import END, Inbox
from baton.rpc.transport.outbox import Outbox
from baton.rpc.wire.compression import ACCEPTED, IDENTITY
from baton.rpc.wire.messages import Data, MessageReader, Parts, frame_message
from baton.rpc.wire.metadata import Metadata, metadata_fields
from baton.rpc.wire.status import read_status
from baton.rpc.wire.timeouts import timeout_value
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

_READ_AHEAD_BYTES = 256 * 1024
"""Bytes of messages that may wait for `read` before the server's window stays closed."""
_RESET_REASONS = {
    ErrorCode.CANCEL: Reason.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Reason.NO_CAPACITY,
    ErrorCode.INADEQUATE_SECURITY: Reason.PERMISSION_DENIED,
    ErrorCode.PROTOCOL_ERROR: Reason.INTERNAL,
    ErrorCode.INTERNAL_ERROR: Reason.INTERNAL,
    ErrorCode.FLOW_CONTROL_ERROR: Reason.INTERNAL,
}
"""Meaning of a reset stream, by error code; any other code: the server is unavailable."""
_MALFORMED = BatonError(Reason.INTERNAL, "the response is not of this method's type")


class CallConnection(Protocol):
    """What a call needs from the connection on which its stream is opened."""

    http2: Http2Connection
    scheme: bytes
    authority: bytes
    """Authority of the server, as the caller names it."""

    def forget(self, call: "ClientCall") -> None:
        """Remove a call that has ended."""
        ...


def _ignore(_: int) -> None:
    """Ignore acknowledged bytes: the window of an ended call stays closed."""


class ClientCall:
    """A client call: the caller's handle, and the owner of its stream. Lives on the event loop.

    Messages sent before the connection is established wait for it. A call that is merely dropped
    continues: `cancel` it in a `finally`.

    Args:
        path: `/package.Service/Method`.
        serialize: encodes a request.
        deserialize: decodes a response.
        max_message_bytes: largest response.
        timeout: seconds until the call ends with DEADLINE; None: no deadline.
        metadata: sent to the server.
        one_request: the call sends exactly one message.
    """

    def __init__(
        self,
        path: str,
        serialize: Callable[[Any], bytes | Parts],
        deserialize: Callable[[Data], Any],
        max_message_bytes: int,
        timeout: float | None,
        metadata: Metadata,
        *,
        one_request: bool,
    ) -> None:
        self.outbox = Outbox(asyncio.get_running_loop())
        """Queue of outgoing messages; signals when the server leaves 64 KiB of them unread."""
        self.error: BatonError | None = None
        """Why the call failed; None: it is running, or succeeded."""
        self.ended = False
        """No more responses follow."""
        self.path = path
        self.trailers: Headers = []
        """Metadata that arrived with the status, as fields."""
        self._loop = asyncio.get_running_loop()
        self._serialize = serialize
        reader = MessageReader(max_message_bytes)
        self._inbox = Inbox(reader, deserialize, _MALFORMED, _READ_AHEAD_BYTES, self._acknowledge)
        self._max_message_bytes = max_message_bytes
        self._metadata = metadata
        self._one_request = one_request
        self._connection: CallConnection | None = None
        self._stream: Http2Stream | None = None
        self._half_closed = False
        self._on_end: Callable[[BatonError | None], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            late = BatonError(Reason.DEADLINE, "the call exceeded its deadline")
            self._timer = self._loop.call_later(timeout, self._give_up, late)

    # Called by the caller.

    def send(self, message: Any) -> bool:
        """Send a message together with others of this iteration of the loop. Never waits.

        Returns:
            False if the server does not read, and 64 KiB or more wait for it.
        """
        if self.ended or self._half_closed:
            return True
        framed = frame_message(self._serialize(message))
        self._half_closed = self._one_request
        return self.outbox.send(framed, self._half_closed)

    def half_close(self) -> None:
        """Send nothing more; responses still arrive."""
        if self.ended or self._half_closed:
            return
        self._half_closed = True
        self.outbox.send((b"",), end=True)

    def receive(
        self, on_message: Callable[[Any], None], on_end: Callable[[BatonError | None], None]
    ) -> None:
        """Pass the responses to a callback as they are read from the socket.

        Args:
            on_message: must not wait; any error that it raises ends the call.
            on_end: called once: with the error of the call, or None if it succeeded.
        """
        self._inbox.give_to(on_message)
        try:
            self._inbox.deliver()
        except Exception as error:  # noqa: BLE001 - it is the call's, and reaches `on_end`
            self._handler_failed(error)
        if self.ended:
            on_end(self.error)
        else:
            self._on_end = on_end

    async def read(self) -> Any:
        """Return the next response; `END` after the last one.

        Raises:
            BatonError: the call failed.
        """
        message = await self._inbox.read()
        if message is END and self.error is not None:
            raise self.error
        return message

    def cancel(self, error: BatonError | None = None) -> None:
        """End the call from this side, with `error` or CANCELLED. Idempotent."""
        self._give_up(error or BatonError(Reason.CANCELLED, "the call was ended by this process"))

    # Called by its connection.

    def open(self, connection: CallConnection) -> None:
        """Open the call's stream."""
        fields: Headers = [
            (b":method", b"POST"),
            (b":scheme", connection.scheme),
            (b":path", self.path.encode()),
            (b":authority", connection.authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"grpc-accept-encoding", ACCEPTED),
        ]
        if self._timer is not None:
            left = max(0.001, self._timer.when() - self._loop.time())
            fields.append((b"grpc-timeout", timeout_value(left)))
        fields += metadata_fields(self._metadata)
        self._connection = connection
        self._stream = connection.http2.open_stream(self, encode(fields))
        self.outbox.open(connection.http2, self._stream)

    def fail(self, error: BatonError) -> None:
        """Fail a call that has no stream because it cannot be sent."""
        self._end(error)

    # Called for events of the stream.

    def on_headers(self, headers: Headers, end: bool) -> None:
        """Handle the head of the response, or its trailers."""
        if end:
            self.trailers = headers
            self._end(read_status(headers))
            return
        values = dict(headers)
        if values.get(b":status") != b"200":
            self._give_up(read_status(headers) or BatonError(Reason.UNKNOWN, "no gRPC status"))
            return
        encoding = values.get(b"grpc-encoding", IDENTITY)
        if encoding != IDENTITY:
            self._inbox.reader = MessageReader(self._max_message_bytes, encoding)

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        """Handle bytes of the responses."""
        try:
            self._inbox.feed(data)
        except Exception as error:  # noqa: BLE001 - it is the call's, and reaches `on_end`
            self._handler_failed(error)
            return
        if end:
            self._end(BatonError(Reason.INTERNAL, "the call ended without a status"))

    def read_into(self, size: int) -> memoryview | None:
        """Return the buffer for the next bytes of the response."""
        return self._inbox.reader.room(size)

    def on_reset(self, code: ErrorCode, message: str) -> None:
        """Handle that the stream was reset."""
        reason = _RESET_REASONS.get(code, Reason.UNAVAILABLE)
        if self._connection is not None and self._connection.http2.closed:
            reason = Reason.UNAVAILABLE
        self._end(BatonError(reason, message))

    def on_drained(self) -> None:
        """Handle that the server has taken most of the waiting data."""
        self.outbox.resume()

    # End of the call.

    def _give_up(self, error: BatonError) -> None:
        if not self.ended:
            if self._stream is not None and self._connection is not None:
                self._connection.http2.reset(self._stream, ErrorCode.CANCEL)
            self._end(error)

    def _end(self, error: BatonError | None) -> None:
        if self.ended:
            return
        self.ended, self.error = True, error
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            if self._stream is not None:
                # A server may end a call before it has received everything.
                self._connection.http2.reset(self._stream, ErrorCode.CANCEL)
            self._connection.forget(self)
        self.outbox.close()
        if error is not None:
            self._inbox.closed = True
        self._inbox.end()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(error)
        # Only its reader still refers to it, so reference counting frees it without the collector.
        if self._stream is not None:
            self._stream.owner = NOBODY
        self.outbox.let_go()
        self._inbox.acknowledge = _ignore
        if not self._inbox:
            self._inbox.let_go()

    def _handler_failed(self, error: Exception) -> None:
        if isinstance(error, BatonError):
            self._give_up(error)
            return
        log.error("rpc.message.failed", method=self.path, exc_info=error)
        self._give_up(BatonError(Reason.INTERNAL, "failed to handle a message"))

    def _acknowledge(self, size: int) -> None:
        if self._stream is not None and self._connection is not None and not self.ended:
            self._connection.http2.acknowledge(self._stream, size)
