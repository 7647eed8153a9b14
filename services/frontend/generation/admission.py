"""Counts and bounds the running requests."""

import asyncio

from baton.errors import BatonError, Reason
from services.frontend.metrics import ACTIVE

_RETRY_SECONDS = 1.0


def stopping() -> BatonError:
    """Return the error of a request that arrives at, or is left on, a stopping frontend."""
    return BatonError(Reason.DRAINING, "this frontend is shutting down", retry_after=_RETRY_SECONDS)


class ActiveRequests:
    """Counts running requests. Lives on the event loop.

    Args:
        most: the most that may run.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        """Count a request.

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

    def leave(self) -> None:
        """Record that a request ended."""
        self._count -= 1
        if not self._count:
            self._idle.set()
        ACTIVE.set(self._count)

    async def wait_idle(self) -> None:
        """Return once no request runs."""
        await self._idle.wait()
