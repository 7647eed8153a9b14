"""Work that a worker may have been lost of begins alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from baton.internal.v1 import worker_pb2
from baton.request.limits import PROVEN_TOKENS

_FLUSH_TURNS = 3
"""Of the loop, until what was sent is the kernel's: it arrives though this process dies."""


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
        self._proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()

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
            begun = worker_pb2.Begun(stream_id=self._start.stream_id)
            self._send(worker_pb2.FrameFromWorker(begun=begun))
            for _ in range(_FLUSH_TURNS):
                await asyncio.sleep(0)
            yield
            await asyncio.wait((self._proven, ended), return_when=asyncio.FIRST_COMPLETED)

    def sampled(self, tokens: int) -> None:
        """Count tokens, while some are left."""
        self.left = max(0, self.left - tokens)
        if not self.left and not self._proven.done():
            self._proven.set_result(None)
