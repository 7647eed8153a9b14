"""The call object of a streaming handler, without a connection."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any


class ScriptedCall:
    """A double of `ServerCall` whose client sends and receives as the test decides.

    Args:
        said: messages of the client, available as soon as the handler reads; `say` adds more.
        takes: how many more messages the client receives; None: all. Further messages wait.
    """

    failure = None
    retired = False
    on_retire: Callable[[], None] | None = None
    on_pause: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None

    def __init__(self, said: Iterable[Any] = (), takes: int | None = None) -> None:
        self.sent: list[Any] = []
        """All messages that the handler sent, including waiting ones."""
        self.stuck = asyncio.Event()
        """Set once a message waits."""
        self.takes = takes
        self.held = False
        """Whether the handler has paused reading."""
        self.buffer_bytes = 0
        """The limit that the handler set for bytes waiting for the client; 0: none yet."""
        self.say: Callable[[Any], None]
        self.half_close: Callable[[], None]
        self._said = list(said)

    async def read(self) -> Any:
        """Return the first messages; later ones go to `receive`."""
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
        """Receive the waiting messages, and all later ones."""
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
