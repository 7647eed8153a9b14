"""The server's side of long-lived calls.

grpc.aio allows one write at a time, and may leave the handler of a client that vanished in the
write that it was in.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from baton.errors import BatonError, Reason
from baton.rpc.streams.send_queue import SendQueue

Request = TypeVar("Request")

READER_SECONDS = 1.0
"""A read or write that does not notice that it is cancelled keeps a handler no longer than this."""
WRITE_SECONDS = 1.0
"""How long a message that is being written may delay the status of a call that failed."""


class ServerStream(Generic[Request]):
    """The server's side of one call: a reader that handles requests, a writer of the send queue.

    Owned by the call's handler. `on_close` is called exactly once, whatever ends the stream, also
    if gRPC leaves the handler in a write: everything that the stream holds is given back there.

    Args:
        queue: what is sent. One that fails ends the call with its error, even amid a write.
        handle: called with each request; what it raises ends the call.
        on_close: gives back what the stream holds; no request is handled afterwards.
        linger_seconds: how long a client that says nothing more may take to read its answers.
        pause_at: no request is read while so many frames wait; None: reading never pauses.
        stall_seconds: a pause that lasts longer ends the call with SLOW_CONSUMER.
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
    ) -> None:
        self._queue = queue
        self._handle = handle
        self._on_close = on_close
        self._linger_seconds = linger_seconds
        self._pause_at = pause_at
        self._stall_seconds = stall_seconds
        self._closed = False
        self._draining = False

    def close(self) -> None:
        """Give everything back. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._on_close()

    def drain(self, error: BatonError, seconds: float) -> None:
        """Handle no more requests; end the call with `error` once its answers were sent.

        Args:
            error: what the client gets.
            seconds: the longest that the answers may take; what is left then is dropped.
        """
        self._draining = True
        self._queue.end(error)
        asyncio.get_running_loop().call_later(seconds, self._queue.fail, error)

    async def serve(self, requests: AsyncIterator[Request], context: Any) -> None:
        """Serve until the client has ended its side and read its answers, or the queue fails.

        Raises:
            BaseException: what `handle` raised, or what the queue failed with.
        """
        reader = asyncio.create_task(self._read(requests))
        reader.add_done_callback(self._read_ended)
        writer = asyncio.create_task(self._write(context))
        try:
            await asyncio.wait((writer, self._queue.failed), return_when=asyncio.FIRST_COMPLETED)
            if self._queue.error is not None:
                self.close()
                # gRPC sends no status while a message is being written.
                await asyncio.wait((writer,), timeout=WRITE_SECONDS)
                raise self._queue.error
            writer.result()
        finally:
            self.close()
            writer.cancel()
            reader.cancel()
            await asyncio.wait((reader, writer), timeout=READER_SECONDS)
            if writer.done() and not writer.cancelled():
                writer.exception()  # the queue's, or of a call that is over

    async def _write(self, context: Any) -> None:
        async for message in self._queue.messages():
            await context.write(message)

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        async for request in requests:
            if self._closed or self._draining:
                return
            self._handle(request)
            if self._pause_at is not None and len(self._queue) >= self._pause_at:
                try:
                    async with asyncio.timeout(self._stall_seconds):
                        await self._queue.wait_below(self._pause_at)
                except TimeoutError as error:
                    stalled = f"no answer was read for {self._stall_seconds:g} s"
                    raise BatonError(Reason.SLOW_CONSUMER, stalled) from error

    def _read_ended(self, reader: "asyncio.Task[None]") -> None:
        error = None if reader.cancelled() else reader.exception()
        if error is not None:
            self._queue.fail(error)
        else:
            self._queue.end()
        if self._linger_seconds and not self._closed:
            asyncio.get_running_loop().call_later(self._linger_seconds, self._linger_over)
        else:
            self.close()

    def _linger_over(self) -> None:
        if not self._closed:
            self._queue.fail(BatonError(Reason.SLOW_CONSUMER, "the last answers were not read"))
            self.close()
