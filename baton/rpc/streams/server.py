"""The server side of long-lived calls."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from baton.errors import BatonError, Reason
from baton.rpc.server.call import ServerCall
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.timing.loop_watch import Timer

Request = TypeVar("Request")


class ServerStream(Generic[Request]):
    """The server side of one call: handles requests as they are read, and sends a queue.

    Owned by the call's handler. `on_close` is called exactly once, however the stream ends, and
    releases everything that the stream holds.

    Args:
        queue: frames to send. A queue that fails ends the call with its error.
        handle: called with each request, from the socket's reader: it must not wait; what it raises
            ends the call.
        on_close: releases the stream's resources; no request is handled afterwards.
        linger_seconds: how long a client that has ended its side may take to read its responses.
        pause_at: number of waiting frames at which reading pauses; None: reading never pauses.
        stall_seconds: a pause that lasts longer ends the call with SLOW_CONSUMER.
        buffer_bytes: bytes that may wait for the client's windows, for bulk data; None: the
            default.
    """

    def __init__(
        self,
        queue: SendQueue[Any, Any],
        handle: Callable[[Request], None],
        on_close: Callable[[], None],
        *,
        linger_seconds: float = 0.0,
        pause_at: int | None = None,
        stall_seconds: float = 30.0,
        buffer_bytes: int | None = None,
    ) -> None:
        self._queue = queue
        self._handle = handle
        self._on_close = on_close
        self._linger_seconds = linger_seconds
        self._pause_at = pause_at
        self._stall_seconds = stall_seconds
        self._buffer_bytes = buffer_bytes
        self._call: ServerCall
        self._stalled: Timer | None = None
        self._closed = False
        self._draining = False

    def close(self) -> None:
        """Release the stream's resources. Idempotent."""
        if not self._closed:
            self._closed = True
            self._on_close()

    def drain(self, error: BatonError, seconds: float) -> None:
        """Handle no more requests; end the call with `error` once its responses were sent.

        Args:
            error: error for the client.
            seconds: longest time for sending the responses; the rest is then dropped.
        """
        self._draining = True
        self._queue.end(error)
        asyncio.get_running_loop().call_later(seconds, self._queue.fail, error)

    async def serve(self, call: ServerCall) -> None:
        """Serve until the client has ended its side and received its responses, or the queue fails.

        Raises:
            BaseException: the error that the queue failed or ended with.
        """
        self._call = call
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def ended(error: BaseException | None) -> None:
            if error is not None:
                self.close()
            if not done.done():
                done.set_result(error)

        if self._buffer_bytes is not None:
            call.set_buffer(self._buffer_bytes)
        call.on_pause, call.on_resume = self._queue.pause, self._queue.resume
        self._queue.attach(call.send, ended)
        try:
            call.receive(self._receive, self._read_ended)
            error = await done
            if error is not None:
                raise error
        finally:
            call.on_pause = call.on_resume = None
            if self._stalled is not None:
                self._stalled.cancel()
            self.close()
            self._queue.fail(BatonError(Reason.CANCELLED, "the call has ended"))

    def _receive(self, request: Request) -> None:
        if self._closed or self._draining:
            return
        self._handle(request)
        if self._pause_at is not None and len(self._queue) >= self._pause_at:
            self._call.hold_requests()
            if self._stalled is None:
                self._stalled = Timer(self._stall_seconds, self._stall)
                self._queue.notify_below(self._pause_at, self._go_on)

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if not self._closed and self._queue.error is None:
            self._call.release_requests()

    def _stall(self) -> None:
        stalled = f"the peer read no response for {self._stall_seconds:g} s"
        self._queue.fail(BatonError(Reason.SLOW_CONSUMER, stalled))

    def _read_ended(self) -> None:
        self._queue.end()
        if self._linger_seconds and not self._closed:
            asyncio.get_running_loop().call_later(self._linger_seconds, self._linger_over)
        else:
            self.close()

    def _linger_over(self) -> None:
        if not self._closed:
            self._queue.fail(
                BatonError(Reason.SLOW_CONSUMER, "the peer did not read the last responses")
            )
            self.close()
