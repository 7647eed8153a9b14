"""A bounded queue of frames to send on one stream."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from baton.errors import BatonError, Reason

Frame = TypeVar("Frame")
Message = TypeVar("Message")

LIMIT = 8192


class SendQueue(Generic[Frame, Message]):
    """A FIFO queue of frames, which are packed into messages as they are sent.

    Owned by one stream, on one event loop. Frames put in one iteration of the loop are packed
    together, at its end. Bounded: a frame that does not fit fails the queue with SLOW_CONSUMER, so
    that a peer that does not read costs no more memory than the limit and delays only its stream.

    Args:
        pack: removes at least one frame from the left of the deque and returns a message of them.
            By default a frame is a message.
        limit: frames that may wait.
        more: returns a frame when none waits, for bulk data that is created only as it is sent, or
            None if it has none now.
    """

    def __init__(
        self,
        pack: Callable[[deque[Frame]], Message] | None = None,
        *,
        limit: int = LIMIT,
        more: Callable[[], Frame | None] | None = None,
    ) -> None:
        self.error: BaseException | None = None
        """Why the queue failed; None: it has not failed."""
        self._pack: Callable[[deque[Any]], Any] = pack or deque.popleft
        self._limit = limit
        self._more = more
        self._frames: deque[Frame] = deque()
        self._send: Callable[[Message], bool] | None = None
        self._on_end: Callable[[BaseException | None], None]
        self._scheduled = False
        self._paused = False
        self._room: list[tuple[int, Callable[[], None]]] = []
        """Callbacks for when fewer frames wait."""
        self._ended = False
        self._end_error: BaseException | None = None
        self._told = False

    def __len__(self) -> int:
        return len(self._frames)

    def attach(
        self, send: Callable[[Message], bool], on_end: Callable[[BaseException | None], None]
    ) -> None:
        """Send waiting and future frames.

        Args:
            send: takes a message and never waits; returns False if the peer does not read: no more
                is sent before `resume`.
            on_end: called once, when everything was sent after `end`, or immediately by `fail`:
                with the error given to either, if any.
        """
        self._send, self._on_end = send, on_end
        self.wake()

    def put(self, frame: Frame) -> bool:
        """Queue a frame; after the end it is dropped.

        Returns False if the frame did not fit, which fails the queue.
        """
        if self._ended:
            return True
        if len(self._frames) >= self._limit:
            behind = f"the peer reads too slowly: {self._limit} frames are queued"
            self.fail(BatonError(Reason.SLOW_CONSUMER, behind))
            return False
        self._frames.append(frame)
        self.wake()
        return True

    def wake(self) -> None:
        """Send waiting frames at the end of this iteration of the loop; ask `more` again."""
        if not self._scheduled and not self._paused and self._send is not None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def pause(self) -> None:
        """Send nothing until `resume`: the peer does not read."""
        self._paused = True

    def resume(self) -> None:
        """Continue after `pause`, or after `send` returned False."""
        self._paused = False
        self.wake()

    def end(self, error: BaseException | None = None) -> None:
        """End with `error`, or none, once everything queued was sent. A later call does nothing."""
        if not self._ended:
            self._ended = True
            self._end_error = error
            self.wake()

    def fail(self, error: BaseException) -> None:
        """Drop the queued frames and end with `error` immediately. A later call does nothing."""
        if self.error is not None or self._told:
            return
        self._ended = True
        self.error = error
        self._frames.clear()
        self._tell(error)
        self._notify_room()

    async def wait_below(self, count: int) -> None:
        """Return once fewer than `count` frames wait, or the queue has failed."""
        if len(self._frames) < count or self.error is not None:
            return
        room = asyncio.get_running_loop().create_future()
        self.notify_below(count, lambda: None if room.done() else room.set_result(None))
        await room

    def notify_below(self, count: int, callback: Callable[[], None]) -> None:
        """Call `callback` when fewer than `count` frames wait, or the queue fails."""
        self._room.append((count, callback))

    def _flush(self) -> None:
        self._scheduled = False
        send = self._send
        assert send is not None
        while self.error is None and not self._paused:
            if not self._frames:
                frame = self._more() if self._more is not None else None
                if frame is None:
                    break
                self._frames.append(frame)
            message = self._pack(self._frames)
            if not send(message):
                self._paused = True
            if self._room:
                self._notify_room()
        if self._ended and self.error is None and not self._frames and not self._paused:
            self._tell(self._end_error)

    def _tell(self, error: BaseException | None) -> None:
        if not self._told and self._send is not None:
            self._told = True
            self._on_end(error)

    def _notify_room(self) -> None:
        waiting, self._room = self._room, []
        for count, callback in waiting:
            if len(self._frames) < count or self.error is not None:
                callback()
            else:
                self._room.append((count, callback))
