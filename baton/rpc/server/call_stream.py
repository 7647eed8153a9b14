"""One call's stream: how the call begins, how long it may take, and how it ends."""

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
"""Requests that may wait for a handler before the client's window is kept shut."""
_REFUSAL_SECONDS = 0.05
"""A call of many messages that is refused before the first came is told so with it, or after
this: grpc.aio's client reports a write that comes too late instead of the status."""
_MESSAGE_COST = 4
"""Of each message that a frame holds, for the turn that reads it: one read may have 50,000."""
_NO_MESSAGE = BatonError(Reason.MALFORMED_BODY, "the message is not of this method's type")


class CallStream:
    """Owns the stream of one call, from its head until the client was told the end.

    It makes the handler's task, gives it what comes, and is the only one to end the call: by what
    the handler returned or raised, by the deadline, by a client that leaves or does not read.

    Args:
        connection: of the stream.
        stream: the call's.
        method: what was called.
        head: of the request.
        timeout: seconds until the call's deadline; None: it has none.
        max_message_bytes: of the client's messages.
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
        self.answer = CallResponse(connection.loop, connection.http2, stream, head.accepts)
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
        """Runs the handler; None before it begins."""
        self.deadline: float | None = None
        """Of the loop's clock."""
        self._stream = stream
        self._returned = False
        """The handler is done."""
        self._done = False
        """The client was told everything, or is gone."""
        self._heard = False
        """Something came of the client's messages."""
        self._partial_bytes = 0
        """Of a message that is not whole yet, as the connection counts them."""
        self._refusal: bytes | None = None
        """A status that is held back a little."""
        self._refusal_timer: asyncio.TimerHandle | None = None
        self._timeout = 0.0 if timeout is None else timeout
        self._deadline_timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            self.deadline = connection.loop.time() + timeout
            self._deadline_timer = connection.loop.call_at(self.deadline, self._too_late)
        self.call = ServerCall(self, method.serialize, one_request=method.one_request)

    # What its handler's task says.

    def succeed(self) -> None:
        """Tell the client that the call succeeded, or what the handler's `set_code` said."""
        call = self.call
        if call.code() is grpc.StatusCode.OK and not call.trailing_metadata():
            self._end(OK_TRAILERS)
        else:
            self.end(call.code().value[0], call.details(), call.trailing_metadata())

    def fail(self, error: BatonError) -> None:
        """Tell the client an error, after what waits for it."""
        if not self.answer.ended:
            self.end(*error_trailers(error))

    def end(self, code: int, message: str, metadata: Metadata) -> None:
        """Tell the client a status, by its number."""
        self._end(encode(trailer_fields(code, message, metadata)))

    def returned(self) -> None:
        """Hear that the handler is done; nothing but `fail` is called after it."""
        self._returned = True
        if self._done:
            self._let_go()

    def cancel(self, error: Exception) -> None:
        """End the call from outside its handler, which is cancelled. A second call does nothing."""
        if self.failure is not None or self._returned:
            return
        self.failure = error
        if isinstance(error, BatonError):
            # At once: the handler may take a while to unwind, and the client may read nothing.
            self.answer.discard()
            self.fail(error)
        if self.task is None:
            self._begin()
        else:
            self.task.cancel()

    def give_up(self, error: BatonError) -> None:
        """Refuse the message that is coming: there are too many of such."""
        self.cancel(error)

    def deliver(self) -> None:
        """Give the handler's callback what waits; what it raises ends the call."""
        try:
            self.inbox.deliver()
        except Exception as error:  # noqa: BLE001 - it is the call's, and reaches it
            self.cancel(error)

    # What happens to the stream.

    def opened(self, end: bool) -> None:
        """Begin, unless the request is still to come."""
        if end:
            self._remote_end()
        elif not self.method.one_request:
            self._begin()

    def on_headers(self, headers: Headers, end: bool) -> None:  # noqa: ARG002
        """Take a client's trailers, which mean nothing in gRPC."""
        self._remote_end()

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        """Take bytes of the client's messages."""
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
        """Return where the next bytes of the client's message belong."""
        return self.inbox.reader.room(size)

    def on_reset(self, code: ErrorCode, message: str) -> None:  # noqa: ARG002
        """Hear that the client cancelled, or is gone."""
        self._over()
        self.cancel(self._why_gone())

    def on_drained(self) -> None:
        """Hear that the client has read most of what waited."""
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
        """Take note of what is kept of a message; return whether the connection may keep it."""
        if size == self._partial_bytes:
            return True
        change, self._partial_bytes = size - self._partial_bytes, size
        return self.connection.keep_partial(self, size, change)

    # How it ends.

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
        """Let go of the stream."""
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
        """Part what refers to each other: a call is freed as it ends, not by the collector."""
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
        if self.answer.ended:  # the status waits behind what the client does not read
            self.connection.http2.reset(self._stream, ErrorCode.CANCEL)
            self._over()
        else:
            self.cancel(error)

    def _why_gone(self) -> BatonError:
        """A client whose deadline is over cancels too, and its clock may be ahead of ours by what
        the call took to get here and by the rounding of a deadline on the wire."""
        if self.deadline is not None:
            left = self.deadline - self.connection.loop.time()
            if left <= 0.05 + 0.01 * self._timeout:
                return BatonError(Reason.DEADLINE, "the call exceeded its deadline")
        return BatonError(Reason.CANCELLED, "the client disconnected")
