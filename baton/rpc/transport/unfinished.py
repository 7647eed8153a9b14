"""Incomplete bodies and messages, of all clients together."""

from typing import Protocol

from baton.errors import BatonError, Reason
from baton.telemetry.metrics import Counter

GIVEN_UP = Counter(
    "baton_public_unfinished_given_up_total",
    "Client bodies and messages rejected before they were complete, because all incomplete ones "
    "together exceeded `public.max_unfinished_bytes`.",
)


class BodyHolder(Protocol):
    """Holds the received part of one body or message."""

    def give_up(self, error: BatonError) -> None:
        """Reject it, and free the received part."""
        ...


class Unfinished:
    """Bounds the memory for incomplete bodies and messages, on the event loop.

    Beyond the limit, the one that began first is rejected: a body sent at full speed is complete
    within a moment, so an old one is slow or abandoned.

    Args:
        most: most bytes; 0: any number.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[BodyHolder, int] = {}
        """Bytes by holder, oldest first."""
        self._total = 0

    def note(self, holder: BodyHolder, size: int) -> None:
        """Record how many bytes a holder has; 0: it is complete, or gone. It may be rejected within
        this."""
        if not self._most:
            return
        before = self._held.pop(holder, 0) if not size else self._held.get(holder, 0)
        if size:
            self._held[holder] = size
        self._total += size - before
        while self._total > self._most:
            oldest = next(iter(self._held))
            self._total -= self._held.pop(oldest)
            GIVEN_UP.inc()
            what = "too many bodies and messages have begun to come and are not whole"
            oldest.give_up(BatonError(Reason.OVERLOADED, f"{what}; try again", retry_after=1.0))
