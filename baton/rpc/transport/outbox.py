"""The outgoing messages of one side of a call, with flow control."""

import asyncio
from collections.abc import Callable

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.stream import Http2Stream
from baton.rpc.timing.stall import Stall
from baton.rpc.transport.socket_protocol import BUFFER_BYTES
from baton.rpc.wire.messages import Parts


class Outbox:
    """Sends messages on a stream, and pauses their sender while too much waits for the reader.

    Messages put before the stream exists are sent when it opens. Owned by one call, on its loop.
    """

    __slots__ = (
        "_buffer_bytes",
        "_drained",
        "_early",
        "_early_bytes",
        "_loop",
        "_on_stall",
        "_paused",
        "_send_data",
        "_stall",
        "_stall_seconds",
        "_stream",
        "on_pause",
        "on_resume",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.on_pause: Callable[[], None] | None = None
        """Called when the other side does not read, and the limit of waiting bytes (`set_buffer`)
        is reached."""
        self.on_resume: Callable[[], None] | None = None
        """Called when the other side has read most of the waiting data."""
        self._loop = loop
        self._stream: Http2Stream | None = None
        self._send_data: Callable[[Http2Stream, bytes | memoryview, bool], None]
        self._early: list[tuple[bytes | memoryview, bool]] = []
        self._early_bytes = 0
        self._buffer_bytes = BUFFER_BYTES
        self._paused = False
        self._drained: asyncio.Future[None] | None = None
        self._on_stall: Callable[[], None] | None = None
        self._stall_seconds = 0.0
        self._stall: Stall | None = None

    def set_buffer(self, size: int) -> None:
        """Set the bytes that may wait before the sender must pause; it resumes at half of them."""
        self._buffer_bytes = size
        if self._stream is not None:
            self._stream.low_water = size // 2

    def limit_stall(self, seconds: float, on_stall: Callable[[], None]) -> None:
        """Call `on_stall` if nothing is read for `seconds` within a pause."""
        self._stall_seconds, self._on_stall = seconds, on_stall

    def open(self, http2: Http2Connection, stream: Http2Stream) -> None:
        """Send waiting and future messages on a stream."""
        self._stream, self._send_data = stream, http2.send_data
        if self._buffer_bytes != BUFFER_BYTES:
            stream.low_water = self._buffer_bytes // 2
        early, self._early = self._early, []
        for data, end in early:
            http2.send_data(stream, data, end)
        if not stream.waiting_bytes:
            self.resume()

    def send(self, framed: Parts, end: bool = False) -> bool:
        """Send a framed message. Never waits.

        Args:
            framed: the message, with its prefix; may be empty at the end.
            end: nothing follows.

        Returns:
            False if the sender must pause.
        """
        stream = self._stream
        *first, last = framed
        if stream is not None:
            for part in first:
                self._send_data(stream, part, False)
            self._send_data(stream, last, end)
            waiting = stream.waiting_bytes
        else:
            self._early += [*((part, False) for part in first), (last, end)]
            self._early_bytes += sum(map(len, framed))
            waiting = self._early_bytes
        if waiting < self._buffer_bytes:
            return True
        self.pause()
        return False

    async def drain(self) -> None:
        """Return once most of the waiting data was read; immediately if it is within the limit."""
        if self._paused:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def pause(self) -> None:
        """Pause the sender until `resume`, which the stream calls when it has drained."""
        if self._paused:
            return
        self._paused = True
        if self._on_stall is not None:
            self._stall = Stall(self._stall_seconds, self._waiting, self._on_stall)
        if self.on_pause is not None:
            self.on_pause()

    def resume(self) -> None:
        """Resume a paused sender."""
        if not self._paused:
            return
        self._paused = False
        self.stop_timer()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.on_resume is not None:
            self.on_resume()

    def stop_timer(self) -> None:
        """Stop enforcing `limit_stall`."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _waiting(self) -> int:
        return self._early_bytes if self._stream is None else self._stream.waiting_bytes

    def let_go(self) -> None:
        """Drop the callbacks."""
        self.on_pause = self.on_resume = self._on_stall = None

    def close(self) -> None:
        """Drop messages that wait for a stream; release a paused sender."""
        self._early.clear()
        self.resume()
