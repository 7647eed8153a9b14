"""The client side of long-lived calls."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from baton.errors import BatonError, Reason
from baton.rpc.channel.call import ClientCall
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.timing.loop_watch import Timer
from baton.rpc.transport.inbox import END

Frame = TypeVar("Frame")
Response = TypeVar("Response")

MAX_BULK_QUEUED = 8
"""Frames that may wait before `ClientStream.send_bulk` blocks its caller."""


class ClientStream(Generic[Frame, Response]):
    """The client side of one call: a bounded send queue, and the received messages.

    Owned by the opener of the call, which calls `close` in a `finally`. Responses are either pulled
    with `read`, or pushed from the socket's reader after `start_reader`.

    Args:
        call: a stream-stream call.
        queue: frames to send; a queue that fails closes the stream.
        write_seconds: a server that accepts nothing for this long while data waits for it closes
            the stream; None: no limit.
        buffer_bytes: bytes that may wait for the server's windows, for bulk data; None: the
            default.
    """

    def __init__(
        self,
        call: ClientCall,
        queue: SendQueue[Frame, Any],
        write_seconds: float | None = None,
        buffer_bytes: int | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._queue = queue
        self._on_closed: Callable[[BatonError], None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.error: BatonError | None = None
        """Why the stream is closed; None while it is open."""
        outbox = call.outbox
        if buffer_bytes is not None:
            outbox.set_buffer(buffer_bytes)
        if write_seconds is not None:
            limit = f"a message could not be sent within {write_seconds:g} s"
            late = BatonError(Reason.SLOW_CONSUMER, limit)
            outbox.limit_stall(write_seconds, lambda: self.close(late))
        outbox.on_pause, outbox.on_resume = queue.pause, queue.resume
        queue.attach(call.send, self._queue_ended)

    @property
    def closed(self) -> bool:
        return self.error is not None

    def start_reader(
        self, on_message: Callable[[Response], None], on_closed: Callable[[BatonError], None]
    ) -> None:
        """Pass every message to `on_message` as it arrives and, last, once, why the stream closed.

        A BatonError that `on_message` raises closes the stream, as does any other error (INTERNAL).
        """
        self._on_closed = on_closed

        def take(message: Response) -> None:
            if self.error is None:
                on_message(message)

        self._call.receive(take, self._call_ended)

    def send(self, frame: Frame) -> None:
        """Queue a frame; on a closed stream it is dropped."""
        if not self._queue.put(frame):
            # Deferred: the caller may be in the middle of an operation.
            error = BatonError(Reason.SLOW_CONSUMER, "write queue full")
            self._loop.call_soon(self.close, error)

    async def send_bulk(self, frame: Frame) -> None:
        """Queue a frame with bulk data, once few other frames wait."""
        await self._queue.wait_below(MAX_BULK_QUEUED)
        self.send(frame)

    async def read(self) -> Response:
        """Return the next message.

        Raises:
            BatonError: the stream ended; CANCELLED if it was closed on this side.
        """
        try:
            message: Any = await self._call.read()
        except BatonError as error:
            raise self.error or error from None
        if message is END:
            raise BatonError(Reason.UNAVAILABLE, "the server ended the stream")
        received: Response = message
        return received

    def close(self, error: BatonError | None = None) -> None:
        """End the call; unsent data is lost. Idempotent."""
        if self.error is not None:
            return
        self.error = error or BatonError(Reason.CANCELLED, "the stream was closed by this process")
        self._call.cancel(self.error)
        self._queue.fail(self.error)
        self._closed.set_result(None)
        if self._on_closed is not None:
            self._on_closed(self.error)

    async def wait_closed(self) -> None:
        """Return once the stream is closed."""
        await asyncio.shield(self._closed)

    def _call_ended(self, error: BatonError | None) -> None:
        self.close(error or BatonError(Reason.UNAVAILABLE, "the server ended the stream"))

    def _queue_ended(self, error: BaseException | None) -> None:
        if isinstance(error, BatonError) and error.reason is not Reason.SLOW_CONSUMER:
            self.close(error)


async def messages(call: ClientCall, idle_seconds: float) -> AsyncGenerator[Any]:
    """Yield the messages of a server-streaming call, to its end.

    Args:
        call: cancelled at the end.
        idle_seconds: the longest time between two messages, not counting time in which this process
            did not run.

    Raises:
        BatonError: DEADLINE if no message arrived in time, else the call's error.
    """
    late = BatonError(Reason.DEADLINE, f"no message for {idle_seconds:g} s")
    idle = Timer(idle_seconds, lambda: call.cancel(late))
    try:
        while True:
            idle.restart()
            message = await call.read()
            idle.pause()  # the time that the caller spends on a message does not count
            if message is END:
                return
            yield message
    finally:
        idle.cancel()
        call.cancel()


async def receive(call: ClientCall, idle_seconds: float) -> AsyncGenerator[Any]:
    """Yield the messages of a server-streaming call that is not expected to end.

    Args:
        call: cancelled at the end.
        idle_seconds: the longest time between two messages.

    Raises:
        BatonError: always, at the end: UNAVAILABLE if the server ended the stream, else as
            `messages` does.
    """
    async with aclosing(messages(call, idle_seconds)) as received:
        async for message in received:
            yield message
    raise BatonError(Reason.UNAVAILABLE, "the server ended the stream")
