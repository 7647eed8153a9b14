"""Sets of holders, each a bitmask that is kept once and named by a small number.

Blocks are many, and their sets of holders few: 19 with 8 workers, some 1,800 with 1,000. A batch of
one holder's events maps each set to the same successor, which is looked up in one of the holder's
tables (`SetTransitions`) and computed once.
"""

from array import array
from collections.abc import Callable, Iterable
from itertools import repeat

EMPTY = 0
"""The number of the empty set."""
_UNKNOWN = 0xFFFFFFFF
MIN_SETS = 4096
MAX_TRANSITIONS = 262_144
_MAX_COLUMN_ENTRIES = 16_777_216
"""Entries of all columns: 64 MB."""


class SetTransitions(dict[int, int]):
    """The successor of each set under one change, computed on the first look-up."""

    __slots__ = ("_make", "_reserve", "column")

    def __init__(self, make: Callable[[int], int], reserve: Callable[[int], None]) -> None:
        super().__init__()
        self._make = make
        self._reserve = reserve
        self.column = array("I")
        """The same for compiled code, by number; 0xFFFFFFFF: not known yet."""

    def __missing__(self, number: int) -> int:
        self[number] = made = self._make(number)
        return made

    def learn(self, number: int) -> int:
        """Return a set's successor, and write it into the column."""
        self._reserve(number + 1 - len(self.column))
        made = self[number]
        column = self.column
        column.extend(repeat(_UNKNOWN, number + 1 - len(column)))
        column[number] = made
        return made

    def clear(self) -> None:
        """Forget all transitions."""
        super().clear()
        del self.column[:]


class HolderSets:
    """Masks by number, and numbers by mask. Owned by one event loop.

    Unused sets stay until `collect`; the number of kept transitions is bounded.

    Args:
        min_sets: fewer are not worth collecting.
        max_transitions: most that are kept; beyond that they are computed again.
    """

    def __init__(self, min_sets: int = MIN_SETS, max_transitions: int = MAX_TRANSITIONS) -> None:
        self._min_sets = min_sets
        self._max_transitions = max_transitions
        self.masks: list[int] = [0]
        """Masks by number; 0 for free numbers."""
        self._numbers: dict[int, int] = {0: EMPTY}
        self._free: list[int] = []
        self._transitions: list[SetTransitions] = []
        self._known_transitions = 0
        self._column_entries = 0
        self._collect_at = min_sets

    def __len__(self) -> int:
        """Return the number of sets, including the empty one."""
        return len(self._numbers)

    @property
    def collectable(self) -> bool:
        """Whether there are twice as many sets as were in use at the last collection."""
        return len(self._numbers) >= self._collect_at

    def adding(self, bits: int) -> SetTransitions:
        """Return the transitions of sets when bits are added."""
        return self._track(lambda number: self._number(self.masks[number] | bits))

    def removing(self, bits: int) -> SetTransitions:
        """Return the transitions of sets when bits are removed."""
        return self._track(lambda number: self._number(self.masks[number] & ~bits))

    def forget(self, *transitions: SetTransitions) -> None:
        """Drop transitions that are no longer needed."""
        for one in transitions:
            self._known_transitions -= len(one)
            self._column_entries -= len(one.column)
            self._transitions = [kept for kept in self._transitions if kept is not one]

    def collect(self, used: Iterable[int]) -> None:
        """Forget all unused sets.

        Args:
            used: the numbers of the sets that blocks have.
        """
        keep = {EMPTY, *used}
        for mask, number in list(self._numbers.items()):
            if number not in keep:
                del self._numbers[mask]
                self.masks[number] = 0
                self._free.append(number)
        self._clear_transitions()
        self._collect_at = max(self._min_sets, 2 * len(self._numbers))

    def _track(self, make: Callable[[int], int]) -> SetTransitions:
        made = SetTransitions(make, self._reserve)
        self._transitions.append(made)
        return made

    def _number(self, mask: int) -> int:
        """Return a set's number, always the same object: blocks share it."""
        if self._known_transitions >= self._max_transitions:
            self._clear_transitions()
        self._known_transitions += 1
        number = self._numbers.get(mask)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.masks[number] = mask
            else:
                number = len(self.masks)
                self.masks.append(mask)
            self._numbers[mask] = number
        return number

    def _reserve(self, entries: int) -> None:
        """Make space for more column entries, by forgetting transitions if necessary."""
        if self._column_entries + entries > _MAX_COLUMN_ENTRIES:
            self._clear_transitions()
        self._column_entries += max(0, entries)

    def _clear_transitions(self) -> None:
        for transitions in self._transitions:
            transitions.clear()
        self._known_transitions = self._column_entries = 0
