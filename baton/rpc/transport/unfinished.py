"""Bodies and messages that have not come whole, of all clients together."""

from typing import Protocol

from baton.errors import BatonError, Reason
from baton.telemetry.metrics import Counter

GIVEN_UP = Counter(
    "baton_public_unfinished_given_up_total",
    "Client bodies and messages rejected before they were complete, because all incomplete ones "
    "together exceeded `public.max_unfinished_bytes`.",
)


class BodyHolder(Protocol):
    """Holds what came of one body or message."""

    def give_up(self, error: BatonError) -> None:
        """Refuse it, and hold nothing of it any more."""
        ...


class Unfinished:
    """Bounds what is held for clients that have begun to send, on the event loop.

    Of more, the one that began first is given up: a body that comes as fast as its client can send
    it is whole within a moment, and what is old is slow or was left.

    Args:
        most: bytes; 0: any number.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[BodyHolder, int] = {}
        """The one that began first is the first."""
        self._total = 0

    def note(self, holder: BodyHolder, size: int) -> None:
        """Take note of how many bytes a holder has; 0: it is whole, or gone. It may be given up
        within this."""
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
