"""Whether every frontend that lives has said what it was given, since the routers changed."""

from collections.abc import Collection, Iterable
from hashlib import blake2b

SILENT_SECONDS = 10.0
"""A frontend that says nothing for so long has nothing to say: it counts no budgets."""


def view_of(routers: Collection[str]) -> bytes:
    """Return 8 bytes that stand for a set of routers."""
    return blake2b("\0".join(sorted(routers)).encode(), digest_size=8).digest()


class RollCall:
    """Asks all frontends anew after each change of the routers. Pure; of one router.

    A frontend has answered once it has echoed the era, and sees the same routers as this one: what
    it was charged by any router before is in that message, or in one before it.
    """

    def __init__(self) -> None:
        self.era = 0
        """Counts the changes; frontends echo it."""
        self._view = b""
        self._since = 0.0
        self._alive: frozenset[str] = frozenset()
        self._said: dict[str, tuple[int, bytes]] = {}
        self._untold: set[str] = set()
        """Frontends of a release that does not say what it was granted of limits per minute."""

    @property
    def alive(self) -> frozenset[str]:
        """The frontends that live."""
        return self._alive

    def begin(self, routers: Collection[str], now: float) -> None:
        """Ask anew: the routers are these now."""
        self.era += 1
        self._view, self._since = view_of(routers), now

    def observe(self, frontends: Collection[str]) -> None:
        """Take in which frontends live."""
        gone = self._alive - frozenset(frontends)
        self._alive = frozenset(frontends)
        for one in gone:
            self.forget(one)

    def forget(self, frontend: str) -> None:
        """Forget what a frontend said: it is gone. One that starts speaks before it is known."""
        self._said.pop(frontend, None)
        self._untold.discard(frontend)

    def heard(self, frontend: str, era: int, view: bytes, *, recent: bool = True) -> bool:
        """Take in what a frontend says; return whether it has yet to hear the era.

        Args:
            frontend: its incarnation.
            era: that it echoes.
            view: of the routers.
            recent: whether it has also said what it was granted of limits per minute.
        """
        self._said[frontend] = era, view
        if not recent:
            self._untold.add(frontend)
        return era != self.era

    def missing(self, now: float) -> list[str]:
        """Return the frontends that have not answered, and whose answer may still come."""
        if now - self._since >= SILENT_SECONDS:
            return []
        expected = self.era, self._view
        return [one for one in self._alive if self._said.get(one) != expected]

    def complete(self, now: float) -> bool:
        """Return whether all have answered."""
        return self.era > 0 and not self.missing(now)

    def tells_recent(self, frontends: Iterable[str], now: float) -> bool:
        """Return whether all have answered, with what they were granted of limits per minute.

        Args:
            frontends: some that must have answered in any case, for they want to know.
            now: a monotonic clock, in seconds.
        """
        if self._untold or not self._alive or not self.complete(now):
            return False
        expected = self.era, self._view
        return all(self._said.get(one) == expected for one in frontends)
