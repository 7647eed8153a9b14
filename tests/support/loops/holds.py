"""The longest time for which one turn of the event loop blocks it."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from types import TracebackType

from tests.support.clock import paused_seconds, slowness, stolen_seconds

LOOK_SECONDS = 0.004
TRIES = 10


class LoopHolds:
    """Watches the running loop inside its context.

    A late timer shows that a turn of the loop blocked it: by its work, by a blocking call, or by
    another thread that held the interpreter's lock. Time for which the kernel made the thread wait
    for a core, or the host the machine, does not count: a busy machine does not look like a blocked
    loop. Garbage collection is off meanwhile: this process has the objects of all its tests, while
    a serving process freezes its own.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        """Seconds, on this machine in its present state."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "LoopHolds":
        gc.disable()
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(LOOK_SECONDS)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        gc.enable()
        assert self._task is not None
        await asyncio.sleep(LOOK_SECONDS)  # the next check sees how long the last turn blocked
        self._task.cancel()
        await asyncio.wait([self._task])

    def longer_than(self, seconds: float) -> bool:
        """Return whether it was blocked for longer, as on a quiet core of a Xeon with AMX."""
        return self.longest > seconds and self.longest / slowness() > seconds

    async def _watch(self) -> None:
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        try:
            while True:
                due, lost = time.monotonic() + LOOK_SECONDS, _lost(fd)
                await asyncio.sleep(LOOK_SECONDS)
                if time.monotonic() - due > self.longest:
                    late = time.monotonic() - due - (_lost(fd) - lost)
                    self.longest = max(self.longest, late)
        finally:
            os.close(fd)


async def holds_loop(act: Callable[[], Awaitable[object]], seconds: float) -> float:
    """Return how long a turn of `act` blocks the loop, 0.0 if not longer than `seconds`.

    A longer time is measured again: the cost of an input recurs.
    """
    for _ in range(TRIES):
        async with LoopHolds() as holds:
            await act()
        if not holds.longer_than(seconds):
            return 0.0
    return holds.longest


def _lost(schedstat: int) -> float:
    """Return the seconds for which this thread waited for a core, and the machine for its host."""
    waited = int(os.pread(schedstat, 64, 0).split()[1]) / 1e9
    return waited + stolen_seconds() + paused_seconds()
