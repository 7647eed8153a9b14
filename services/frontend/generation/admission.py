"""Counts, bounds and ends the running requests."""

import asyncio
from collections.abc import Callable

from baton.errors import BatonError, Reason
from services.frontend.generation.generation import Generation
from services.frontend.metrics import ACTIVE

_RETRY_SECONDS = 1.0


def stopping() -> BatonError:
    """Return the error of a request that arrives at, or still runs on, a stopping frontend."""
    return BatonError(Reason.DRAINING, "this frontend is shutting down", retry_after=_RETRY_SECONDS)


class ActiveRequest:
    """A request that counts until it leaves."""

    __slots__ = ("_leave", "chosen")

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave: Callable[[], None] | None = leave
        self.chosen = False
        """Whether its generation is chosen: before, another one may follow an abandoned one."""

    def leave(self) -> None:
        """Record that it ended. Idempotent."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class ActiveRequests:
    """Counts running requests, and ends them when the frontend stops. Runs on the event loop.

    Args:
        most: the most requests that may run.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        """Of those that are being admitted, too: they have no generation yet."""
        self._generations: set[Generation] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> ActiveRequest:
        """Count a request until it leaves.

        Raises:
            BatonError: OVERLOADED: the limit is reached.
        """
        if self._count >= self._most:
            raise BatonError(
                Reason.OVERLOADED,
                f"{self._most} requests are already running (limits.max_requests); retry later",
                retry_after=_RETRY_SECONDS,
            )
        self._count += 1
        self._idle.clear()
        ACTIVE.set(self._count)
        return ActiveRequest(self._leave)

    def add(self, generation: Generation) -> None:
        """Record a generation of a request that has entered."""
        self._generations.add(generation)

    def remove(self, generation: Generation) -> None:
        """Record that a generation ended."""
        self._generations.discard(generation)

    def end_all(self, error: BatonError) -> None:
        """End the generations with an error."""
        for generation in list(self._generations):
            generation.end(error)

    async def wait_idle(self) -> None:
        """Return once no request runs."""
        await self._idle.wait()

    def _leave(self) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()
        ACTIVE.set(self._count)
