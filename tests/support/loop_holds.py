"""How long one turn of the event loop holds it."""

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

    A timer that comes late was held up by a turn of the loop: by its work, by a call that blocks,
    by another thread that has the interpreter's lock. What does not count is the time for which the
    kernel let the thread wait for a core, and the host the machine: a busy one does not look like a
    loop that was held. No garbage is collected meanwhile: this process has all that its tests have
    made, of which a process that serves freezes its own.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        """Seconds, on this machine as it is now."""
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
        await asyncio.sleep(LOOK_SECONDS)  # what the last turn held is seen by the next look
        self._task.cancel()
        await asyncio.wait([self._task])

    def longer_than(self, seconds: float) -> bool:
        """Return whether it was held for longer, as on a quiet core of a Xeon with AMX."""
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
    """Return how long a turn of `act` holds the loop, 0.0 if that is not longer than `seconds`.

    It is tried again where it was: what an input costs, it costs each time.
    """
    for _ in range(TRIES):
        async with LoopHolds() as holds:
            await act()
        if not holds.longer_than(seconds):
            return 0.0
    return holds.longest


def _lost(schedstat: int) -> float:
    """Return the seconds that this thread waited for a core, and the machine for its host."""
    waited = int(os.pread(schedstat, 64, 0).split()[1]) / 1e9
    return waited + stolen_seconds() + paused_seconds()
