"""Work that a worker may have been lost of begins alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from baton.internal.v1 import worker_pb2
from baton.request.limits import PROVEN_TOKENS

ACKNOWLEDGE_SECONDS = 1.0
"""The longest that a frontend which does not answer keeps other suspects waiting."""
_FLUSH_TURNS = 3
"""Of the loop, until what was sent is the kernel's: all that there is to wait for with a frontend
that acknowledges nothing."""


class Probation:
    """The first tokens of one stream, which prove that the engine bears it if it is suspect.

    Owned by the stream, on the asyncio loop. A worker has one lock for all of its frontends'
    streams: so if it dies while it is held, it died of the holder, or of something else.

    Args:
        suspects: that lock.
        start: the stream's own; most are not suspect.
        send: takes a frame for the frontend.
    """

    def __init__(
        self,
        suspects: asyncio.Lock,
        start: worker_pb2.Start,
        send: Callable[[worker_pb2.FrameFromWorker], None],
    ) -> None:
        long = start.suspect and not start.HasField("prefill")
        self.left = PROVEN_TOKENS if long else 1
        """Tokens that are to come until it is proven."""
        self._suspects = suspects
        self._start = start
        self._send = send
        loop = asyncio.get_running_loop()
        self._acknowledged: asyncio.Future[None] = loop.create_future()
        self._proven: asyncio.Future[None] = loop.create_future()

    @property
    def unproven(self) -> bool:
        """Whether it is suspect and not proven: others wait until it is."""
        return self._start.suspect and self.left > 0

    @asynccontextmanager
    async def begin(self, ended: "asyncio.Future[Any]") -> AsyncIterator[None]:
        """Give the engine the stream within: what is suspect when no other is unproven.

        Leaves when it is proven, or has ended.
        """
        if not self._start.suspect:
            yield
            return
        async with self._suspects:
            await self._announce()
            yield
            await asyncio.wait((self._proven, ended), return_when=asyncio.FIRST_COMPLETED)

    def sampled(self, tokens: int) -> None:
        """Count tokens, while some are left."""
        self.left = max(0, self.left - tokens)
        if not self.left and not self._proven.done():
            self._proven.set_result(None)

    def acknowledged(self) -> None:
        """Take in that the frontend knows that it begins."""
        if not self._acknowledged.done():
            self._acknowledged.set_result(None)

    async def _announce(self) -> None:
        """Return when the frontend would know of what this process died, if it died now.

        What is sent is not enough: who writes to a connection whose other end is dead loses what it
        has not read yet.
        """
        waits = self._start.acknowledges_begun
        begun = worker_pb2.Begun(stream_id=self._start.stream_id, awaits_acknowledgement=waits)
        self._send(worker_pb2.FrameFromWorker(begun=begun))
        if waits:
            await asyncio.wait((self._acknowledged,), timeout=ACKNOWLEDGE_SECONDS)
            return
        for _ in range(_FLUSH_TURNS):
            await asyncio.sleep(0)
