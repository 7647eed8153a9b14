"""The call that a handler of a stream is given, without a connection below it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any


class ScriptedCall:
    """Stands for `ServerCall`: its client says and takes what a test wants.

    Args:
        said: what the client says as soon as it is read or listened to; `say` says more.
        takes: how many more messages the client takes; None: all. Others wait for it.
    """

    failure = None
    retired = False
    on_retire: Callable[[], None] | None = None
    on_pause: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None

    def __init__(self, said: Iterable[Any] = (), takes: int | None = None) -> None:
        self.sent: list[Any] = []
        """All that the handler sent, what waits included."""
        self.stuck = asyncio.Event()
        """Set once a message waits."""
        self.takes = takes
        self.held = False
        """The handler wants no messages now."""
        self.buffer_bytes = 0
        """What the handler lets wait for the client; 0: it has not said."""
        self.say: Callable[[Any], None]
        self.half_close: Callable[[], None]
        self._said = list(said)

    async def read(self) -> Any:
        """Return what was to be said first; the rest is for `receive`."""
        return self._said.pop(0)

    def receive(self, on_message: Callable[[Any], None], on_end: Callable[[], None]) -> None:
        self.say, self.half_close = on_message, on_end
        for message in self._said:
            on_message(message)

    def send(self, message: Any) -> bool:
        self.sent.append(message)
        if self.takes is None:
            return True
        if self.takes == 0:
            self.stuck.set()
            return False
        self.takes -= 1
        return True

    def read_on(self) -> None:
        """Take what waits, and all that comes."""
        self.takes = None
        if self.on_resume is not None:
            self.on_resume()

    def hold_requests(self) -> None:
        self.held = True

    def release_requests(self) -> None:
        self.held = False

    def set_buffer(self, size: int) -> None:
        self.buffer_bytes = size

    def time_remaining(self) -> float | None:
        return None
