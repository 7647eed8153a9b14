"""Entries that expire, all the same time after they were added."""

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Timed(Hashable, Protocol):
    """Has a deadline, which does not change while the entry is kept."""

    deadline: float


T = TypeVar("T", bound=Timed)


class Deadlines(Generic[T]):
    """Entries in the order of their deadlines, which is the order of adding them.

    Bounded by its owner. No clock: time comes as an argument.
    """

    def __init__(self) -> None:
        self._entries: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, *entries: T) -> None:
        self._entries.update(dict.fromkeys(entries))

    def remove(self, *entries: T) -> None:
        """Remove entries.

        Raises:
            KeyError: one is not kept.
        """
        for entry in entries:
            del self._entries[entry]

    def due(self, now: float) -> list[T]:
        """Return the entries whose deadline has come, earliest first, without removing them."""
        due = []
        for entry in self._entries:
            if entry.deadline > now:
                break
            due.append(entry)
        return due
