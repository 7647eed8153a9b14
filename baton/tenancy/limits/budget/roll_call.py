"""Whether every live frontend has reported its grants since the set of routers changed."""

from collections.abc import Collection, Iterable
from hashlib import blake2b

SILENT_SECONDS = 10.0
"""A frontend that is silent for this long has nothing to report: it does not count budgets."""


def view_of(routers: Collection[str]) -> bytes:
    """Return 8 bytes that identify a set of routers."""
    return blake2b("\0".join(sorted(routers)).encode(), digest_size=8).digest()


class RollCall:
    """Polls all frontends again after each change of the routers. Pure; one per router.

    A frontend has answered once it has echoed the era, and knows the same routers as this one: all
    earlier charges by any router are in that message, or in one before it.
    """

    def __init__(self) -> None:
        self.era = 0
        """Counts the changes of routers; frontends echo it."""
        self._view = b""
        self._since = 0.0
        self._alive: frozenset[str] = frozenset()
        self._said: dict[str, tuple[int, bytes]] = {}
        self._untold: set[str] = set()
        """Frontends of a release that does not report grants of per-minute limits."""

    @property
    def alive(self) -> frozenset[str]:
        """The live frontends."""
        return self._alive

    def begin(self, routers: Collection[str], now: float) -> None:
        """Poll again: the routers are now these."""
        self.era += 1
        self._view, self._since = view_of(routers), now

    def observe(self, frontends: Collection[str]) -> None:
        """Set the live frontends."""
        gone = self._alive - frozenset(frontends)
        self._alive = frozenset(frontends)
        for one in gone:
            self.forget(one)

    def forget(self, frontend: str) -> None:
        """Forget the reports of a frontend that is gone. A starting one may report before it is
        known."""
        self._said.pop(frontend, None)
        self._untold.discard(frontend)

    def heard(self, frontend: str, era: int, view: bytes, *, recent: bool = True) -> bool:
        """Record a frontend's report; return whether it still has to receive the era.

        Args:
            frontend: its incarnation.
            era: era that it echoes.
            view: its view of the routers.
            recent: whether it has also reported its grants of per-minute limits.
        """
        self._said[frontend] = era, view
        if not recent:
            self._untold.add(frontend)
        return era != self.era

    def missing(self, now: float) -> list[str]:
        """Return the frontends that have not answered, and whose answer may still arrive."""
        if now - self._since >= SILENT_SECONDS:
            return []
        expected = self.era, self._view
        return [one for one in self._alive if self._said.get(one) != expected]

    def complete(self, now: float) -> bool:
        """Return whether all have answered."""
        return self.era > 0 and not self.missing(now)

    def tells_recent(self, frontends: Iterable[str], now: float) -> bool:
        """Return whether all have answered, including their grants of per-minute limits.

        Args:
            frontends: frontends that must have answered in any case, because they need the result.
            now: a monotonic clock, in seconds.
        """
        if self._untold or not self._alive or not self.complete(now):
            return False
        expected = self.era, self._view
        return all(self._said.get(one) == expected for one in frontends)
