"""What one stream has to say, in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from baton.errors import BatonError, Reason

T = TypeVar("T")


class SendQueue(Generic[T]):
    """A bounded queue of frames: a peer that does not read is cut with SLOW_CONSUMER.

    Args:
        limit: frames that may wait.
        more: asked for a frame when none waits (bulk data made as it is sent); None for none now.
    """

    def __init__(self, limit: int = 8192, more: Callable[[], T | None] = lambda: None) -> None:
        self._limit = limit
        self._more = more
        self._frames: deque[T] = deque()
        self._awake = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, frame: T) -> None:
        """Queue a frame; after the end it is dropped."""
        if self._ended:
            return
        if len(self._frames) >= self._limit:
            self.end(BatonError(Reason.SLOW_CONSUMER, "answers were read too slowly"))
            return
        self._frames.append(frame)
        self._awake.set()

    def wake(self) -> None:
        """`more` has something."""
        self._awake.set()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing follows. With an error what waits is dropped and `frames` raises it."""
        if not self._ended:
            self._ended = True
            self._error = error
            if error is not None:
                self._frames.clear()
            self._awake.set()

    async def frames(self) -> AsyncGenerator[T]:
        """Every frame, until the end."""
        while True:
            self._awake.clear()
            while self._error is None:
                frame = self._frames.popleft() if self._frames else self._more()
                if frame is None:
                    break
                yield frame
            if self._error is not None:
                raise self._error
            if self._ended:
                return
            await self._awake.wait()
