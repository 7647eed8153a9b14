"""The stream of one call: how the call begins, how long it may take, and how it ends."""

import asyncio
from functools import partial

import grpc

from baton.errors import BatonError, Reason
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.stream import NOBODY, Http2Stream
from baton.rpc.server.answer import CallResponse
from baton.rpc.server.call import ServerCall
from baton.rpc.server.head import CallHead
from baton.rpc.server.methods import Method
from baton.rpc.server.protocols import StreamConnection
from baton.rpc.transport.inbox import Inbox
from baton.rpc.wire.messages import MessageReader
from baton.rpc.wire.metadata import Metadata
from baton.rpc.wire.status import OK_TRAILERS, error_trailers, trailer_fields

_READ_AHEAD_BYTES = 64 * 1024
"""Bytes of requests that may wait for a handler before the client's window stays closed."""
_REFUSAL_SECONDS = 0.05
"""A streaming call that is rejected before its first message gets the status with that message, or
after this time: grpc.aio's client reports a late write instead of the status."""
_MESSAGE_COST = 4
"""Cost of each message in a frame, for the turn that reads it: one read may hold 50,000."""
_NO_MESSAGE = BatonError(Reason.MALFORMED_BODY, "the message is not of this method's type")


class CallStream:
    """Owns the stream of one call, from its head until the client has received the status.

    It creates the handler's task, passes it incoming messages, and alone ends the call: when the
    handler returns or raises, at the deadline, or when the client leaves or does not read.

    Args:
        connection: connection of the stream.
        stream: stream of the call.
        method: method that was called.
        head: head of the request.
        timeout: seconds until the call's deadline; None: it has none.
        max_message_bytes: largest message from the client.
    """

    __slots__ = (
        "_deadline_timer",
        "_done",
        "_heard",
        "_partial_bytes",
        "_refusal",
        "_refusal_timer",
        "_returned",
        "_stream",
        "_timeout",
        "answer",
        "call",
        "connection",
        "deadline",
        "failure",
        "head",
        "inbox",
        "method",
        "task",
    )

    def __init__(
        self,
        connection: "StreamConnection[CallStream]",
        stream: Http2Stream,
        method: Method,
        head: CallHead,
        timeout: float | None,
        max_message_bytes: int,
    ) -> None:
        self.connection = connection
        self.method = method
        self.head = head
        self.answer = CallResponse(connection.loop, connection.http2, stream)
        self.answer.outbox.limit_stall(connection.stall_seconds, self._stalled)
        self.inbox = Inbox(
            MessageReader(max_message_bytes, head.encoding),
            method.deserialize,
            _NO_MESSAGE,
            _READ_AHEAD_BYTES,
            partial(connection.http2.acknowledge, stream),
        )
        self.failure: Exception | None = None
        """Why the handler was cancelled from outside; None: it was not."""
        self.task: asyncio.Task[None] | None = None
        """Task of the handler; None before it begins."""
        self.deadline: float | None = None
        """Deadline on the loop's clock."""
        self._stream = stream
        self._returned = False
        """Whether the handler has returned."""
        self._done = False
        """Whether the client has received everything, or has disconnected."""
        self._heard = False
        """Whether any of the client's messages has arrived."""
        self._partial_bytes = 0
        """Bytes of an incomplete message, as the connection counts them."""
        self._refusal: bytes | None = None
        """A status that is delayed briefly."""
        self._refusal_timer: asyncio.TimerHandle | None = None
        self._timeout = 0.0 if timeout is None else timeout
        self._deadline_timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            self.deadline = connection.loop.time() + timeout
            self._deadline_timer = connection.loop.call_at(self.deadline, self._too_late)
        self.call = ServerCall(self, method.serialize, one_request=method.one_request)

    # Called by the handler's task.

    def succeed(self) -> None:
        """End the call with success, or the status set by the handler's `set_code`."""
        call = self.call
        if call.code() is grpc.StatusCode.OK and not call.trailing_metadata():
            self._end(OK_TRAILERS)
        else:
            self.end(call.code().value[0], call.details(), call.trailing_metadata())

    def fail(self, error: BatonError) -> None:
        """End the call with an error, after the waiting data."""
        if not self.answer.ended:
            self.end(*error_trailers(error))

    def end(self, code: int, message: str, metadata: Metadata) -> None:
        """End the call with a status, by its number."""
        self._end(encode(trailer_fields(code, message, metadata)))

    def returned(self) -> None:
        """Handle that the handler has returned; only `fail` may follow."""
        self._returned = True
        if self._done:
            self._let_go()

    def cancel(self, error: Exception) -> None:
        """End the call from outside its handler, which is cancelled. Idempotent."""
        if self.failure is not None or self._returned:
            return
        self.failure = error
        if isinstance(error, BatonError):
            # Immediately: the handler may take a while to unwind, and the client may read nothing.
            self.answer.discard()
            self.fail(error)
        if self.task is None:
            self._begin()
        else:
            self.task.cancel()

    def give_up(self, error: BatonError) -> None:
        """Reject the incoming message: too many messages are incomplete."""
        self.cancel(error)

    def deliver(self) -> None:
        """Pass waiting messages to the handler's callback; what it raises ends the call."""
        try:
            self.inbox.deliver()
        except Exception as error:  # noqa: BLE001 - it is the call's, and reaches it
            self.cancel(error)

    # Called for events of the stream.

    def opened(self, end: bool) -> None:
        """Begin the call, unless the request is still to arrive."""
        if end:
            self._remote_end()
        elif not self.method.one_request:
            self._begin()

    def on_headers(self, headers: Headers, end: bool) -> None:  # noqa: ARG002
        """Handle a client's trailers, which have no meaning in gRPC."""
        self._remote_end()

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        """Handle bytes of the client's messages."""
        if self.answer.ended:
            self._refuse()
            return
        self._heard = True
        try:
            messages = self.inbox.feed(data)
        except Exception as error:  # noqa: BLE001 - it is the call's, and reaches it
            self.cancel(error)
            return
        if messages > 1:
            self.connection.http2.charge(_MESSAGE_COST * messages)
        if not self._keep_partial(self.inbox.reader.partial_bytes):
            self.cancel(BatonError(Reason.OVERLOADED, "too many incomplete messages"))
            return
        if self.inbox and self.method.one_request:
            self._begin()
        if end:
            self._remote_end()

    def read_into(self, size: int) -> memoryview | None:
        """Return the buffer for the next bytes of the client's message."""
        return self.inbox.reader.room(size)

    def on_reset(self, code: ErrorCode, message: str) -> None:  # noqa: ARG002
        """Handle that the client cancelled, or disconnected."""
        self._over()
        self.cancel(self._why_gone())

    def on_drained(self) -> None:
        """Handle that the client has read most of the waiting data."""
        if not self.answer.ended:
            self.answer.outbox.resume()
        elif not self._stream.waiting_bytes:
            self._over()

    def _remote_end(self) -> None:
        self.inbox.end()
        self._refuse()
        if self.inbox.reader.partial_bytes:
            self.cancel(
                BatonError(Reason.MALFORMED_BODY, "the call ended with an incomplete message")
            )
            return
        self._begin()
        self.deliver()

    def _begin(self) -> None:
        if self.task is None:
            self.task = self.connection.begin(self)

    def _keep_partial(self, size: int) -> bool:
        """Record the bytes buffered of a message; return whether the connection allows them."""
        if size == self._partial_bytes:
            return True
        change, self._partial_bytes = size - self._partial_bytes, size
        return self.connection.keep_partial(self, size, change)

    # End of the call.

    def _end(self, trailers: bytes) -> None:
        if self.answer.ended:
            return
        self.inbox.closed = True
        if not (self.answer.begun or self._heard or self.inbox.ended or self.method.one_request):
            self.answer.ended = True
            self._refusal = trailers
            loop = self.connection.loop
            self._refusal_timer = loop.call_later(_REFUSAL_SECONDS, self._refuse)
        elif self.answer.end(trailers):
            self._over()

    def _refuse(self) -> None:
        trailers, self._refusal = self._refusal, None
        if trailers is not None and self.answer.end(trailers):
            self._over()

    def _over(self) -> None:
        """Release the stream."""
        if self._done:
            return
        self.inbox.closed = True
        self.answer.close()
        self._refusal = None
        for timer in (self._deadline_timer, self._refusal_timer):
            if timer is not None:
                timer.cancel()
        self._deadline_timer = self._refusal_timer = None
        self._keep_partial(0)
        self.connection.forget(self)
        self._done = True
        if self._returned:
            self._let_go()

    def _let_go(self) -> None:
        """Break reference cycles, so that a call is freed as it ends, without the collector."""
        self._stream.owner = NOBODY
        self.call.on_retire = None
        del self.call
        self.answer.outbox.let_go()
        self.inbox.let_go()

    def _stalled(self) -> None:
        seconds = self.connection.stall_seconds
        self._cut(BatonError(Reason.SLOW_CONSUMER, f"the client did not read for {seconds:g} s"))

    def _too_late(self) -> None:
        self._cut(BatonError(Reason.DEADLINE, "the call exceeded its deadline"))

    def _cut(self, error: BatonError) -> None:
        if self.answer.ended:  # the status waits behind data that the client does not read
            self.connection.http2.reset(self._stream, ErrorCode.CANCEL)
            self._over()
        else:
            self.cancel(error)

    def _why_gone(self) -> BatonError:
        """Return why the client left: a client cancels too when its deadline has passed, and its
        clock may be ahead of ours by the call's latency and the rounding of a deadline on the
        wire."""
        if self.deadline is not None:
            left = self.deadline - self.connection.loop.time()
            if left <= 0.05 + 0.01 * self._timeout:
                return BatonError(Reason.DEADLINE, "the call exceeded its deadline")
        return BatonError(Reason.CANCELLED, "the client disconnected")
