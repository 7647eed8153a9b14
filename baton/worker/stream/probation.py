"""Run suspect work, which may have crashed another worker, alone at first."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from baton.internal.v1 import worker_pb2
from baton.request.limits import PROVEN_TOKENS

ACKNOWLEDGE_SECONDS = 1.0
"""Maximum seconds for which a frontend that does not acknowledge keeps other suspects waiting."""
_FLUSH_TURNS = 3
"""Turns of the loop until sent data are in the kernel: the only possible wait for a frontend that
acknowledges nothing.
"""


class Probation:
    """First tokens of a suspect stream, which prove that the engine survives it.

    Owned by the stream, on the asyncio loop. A worker has one lock for the streams of all its
    frontends: if it crashes while the lock is held, the cause is the holder, or not a suspect at
    all.

    Args:
        suspects: that lock.
        start: the stream's own; most are not suspect.
        send: sends a frame to the frontend.
    """

    def __init__(
        self,
        suspects: asyncio.Lock,
        start: worker_pb2.Start,
        send: Callable[[worker_pb2.FrameFromWorker], None],
    ) -> None:
        long = start.suspect and not start.HasField("prefill")
        self.left = PROVEN_TOKENS if long else 1
        """Number of tokens until it is proven."""
        self._suspects = suspects
        self._start = start
        self._send = send
        self._acknowledged: asyncio.Event | None = None
        """Set by the frontend's acknowledgement; None: it is not waited for."""
        self._proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def unproven(self) -> bool:
        """Whether it is suspect and not yet proven: other suspects wait for it."""
        return self._start.suspect and self.left > 0

    @asynccontextmanager
    async def begin(self, ended: "asyncio.Future[Any]") -> AsyncIterator[None]:
        """Admit the stream to the engine within this context: a suspect one only when no other is
        unproven.

        The lock is released once the stream is proven or has ended.
        """
        if not self._start.suspect:
            yield
            return
        async with self._suspects:
            await self._announce()
            yield
            await asyncio.wait((self._proven, ended), return_when=asyncio.FIRST_COMPLETED)

    def sampled(self, tokens: int) -> None:
        """Count tokens until it is proven."""
        self.left = max(0, self.left - tokens)
        if not self.left and not self._proven.done():
            self._proven.set_result(None)

    def acknowledged(self) -> None:
        """Record that the frontend knows that the stream begins."""
        if self._acknowledged is not None:
            self._acknowledged.set()

    async def _announce(self) -> None:
        """Return once the frontend could name the cause if this process crashed now.

        Sending is not enough: if this process dies, a peer that is writing to the connection loses
        the data that it has not read yet.
        """
        waits = self._start.acknowledges_begun
        acknowledged = self._acknowledged = asyncio.Event() if waits else None
        begun = worker_pb2.Begun(stream_id=self._start.stream_id, awaits_acknowledgement=waits)
        self._send(worker_pb2.FrameFromWorker(begun=begun))
        if acknowledged is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(ACKNOWLEDGE_SECONDS):
                    await acknowledged.wait()
            return
        for _ in range(_FLUSH_TURNS):
            await asyncio.sleep(0)
