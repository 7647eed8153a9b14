"""The bounded queue of frames that one stream has to send."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, TypeVar

from baton.errors import BatonError, Reason

Frame = TypeVar("Frame")
Message = TypeVar("Message")

LIMIT = 8192


class SendQueue(Generic[Frame, Message]):
    """Frames in the order in which they were put, packed into messages as they are sent.

    Owned by one stream, on one event loop; one task iterates `messages`. Bounded: a frame that
    does not fit fails the queue with SLOW_CONSUMER, so that a peer that does not read costs no
    more memory than the limit and delays nothing but its own stream.

    Args:
        pack: takes at least one frame off the left of the deque and returns a message of them.
            By default a frame is a message.
        limit: frames that may wait.
        more: asked for a frame when none waits, for bulk data that is made only as it is sent;
            returns None when it has none now.
    """

    def __init__(
        self,
        pack: Callable[[deque[Frame]], Message] | None = None,
        *,
        limit: int = LIMIT,
        more: Callable[[], Frame | None] | None = None,
    ) -> None:
        self._pack: Callable[[deque[Any]], Any] = pack or deque.popleft
        self._limit = limit
        self._more = more
        self._frames: deque[Frame] = deque()
        self._wakeup = asyncio.Event()
        self._room: list[tuple[int, asyncio.Future[None]]] = []
        self._ended = False
        self._end_error: BaseException | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved once the queue has failed; its error is `error`."""
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: Frame) -> bool:
        """Queue a frame; after the end it is dropped.

        Returns False if the frame did not fit, which fails the queue.
        """
        if self._ended:
            return True
        if len(self._frames) >= self._limit:
            behind = f"the peer reads too slowly: {self._limit} frames wait"
            self.fail(BatonError(Reason.SLOW_CONSUMER, behind))
            return False
        self._frames.append(frame)
        self._wakeup.set()
        return True

    def wake(self) -> None:
        """Ask `more` again."""
        self._wakeup.set()

    def end(self, error: BaseException | None = None) -> None:
        """Let `messages` return, or raise `error`, once everything queued was sent.

        A later call does nothing.
        """
        if not self._ended:
            self._ended = True
            self._end_error = error
        self._wakeup.set()

    def fail(self, error: BaseException) -> None:
        """Drop what is queued and let `messages` raise `error`. A later call does nothing."""
        if self.error is not None:
            return
        self._ended = True
        self.error = error
        self._frames.clear()
        self._wakeup.set()
        self._notify_room()
        if not self.failed.done():
            self.failed.set_result(None)

    async def wait_below(self, count: int) -> None:
        """Return once fewer than `count` frames wait, or the queue has failed."""
        if len(self._frames) < count or self.error is not None:
            return
        room = asyncio.get_running_loop().create_future()
        self._room.append((count, room))
        await room

    async def messages(self) -> AsyncGenerator[Message]:
        """Yield messages until the end.

        Raises:
            BaseException: what `fail` or `end` was given.
        """
        while True:
            self._wakeup.clear()
            while self.error is None:
                if not self._frames:
                    frame = self._more() if self._more is not None else None
                    if frame is None:
                        break
                    self._frames.append(frame)
                message = self._pack(self._frames)
                if self._room:
                    self._notify_room()
                yield message
            if self.error is not None:
                raise self.error
            if self._end_error is not None:
                raise self._end_error
            if self._ended:
                return
            await self._wakeup.wait()

    def _notify_room(self) -> None:
        waiting, self._room = self._room, []
        for count, room in waiting:
            if room.done():
                continue
            if len(self._frames) < count or self.error is not None:
                room.set_result(None)
            else:
                self._room.append((count, room))
