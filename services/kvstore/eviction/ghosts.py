"""How often what went was used: a table of fixed places, without an object per name.

Each name has one place, which the next name that falls there takes over. So what went long ago is
forgotten bit by bit: a table with twice as many places as names that matter remembers 6 of 10 of
the oldest of them. A dict of as many names takes ten times the memory, none of it in any cache.
"""

from array import array
from collections.abc import Hashable

MAX_USES = (1 << 16) - 1
_HASH_MASK = (1 << 64) - 1


class Ghosts:
    """Uses and the time of the last counted one, by name. Names are told apart by 64 bits."""

    def __init__(self, places: int) -> None:
        """Begin with so many places, a power of two. They take memory once something went."""
        self.places = places
        self._table = array("Q")
        """Per place a name's hash, and its `counted << 16 | uses`; uses are 0 where nothing is."""

    def remember(self, name: Hashable, uses: int, counted: int) -> None:
        """It went. Uses beyond 65,535 are not told apart, of which there is one at least."""
        if not self._table:
            self._table = array("Q", bytes(16 * self.places))
        mixed = hash(name) & _HASH_MASK
        at = 2 * (mixed & self.places - 1)
        self._table[at] = mixed
        self._table[at + 1] = counted << 16 | min(uses, MAX_USES)

    def take(self, name: Hashable) -> tuple[int, int] | None:
        """Uses and `counted` of what comes back, which is then no ghost any more."""
        mixed = hash(name) & _HASH_MASK
        at = 2 * (mixed & self.places - 1)
        if not self._table or self._table[at] != mixed or not (value := self._table[at + 1]):
            return None
        self._table[at + 1] = 0
        return value & MAX_USES, value >> 16

    def grow(self) -> None:
        """Have twice as many places. Nothing is forgotten."""
        # A name's new place is its old one or the one as far into the second half: both have it,
        # and where it does not belong it is never looked for.
        self._table += self._table
        self.places *= 2
