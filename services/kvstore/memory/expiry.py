"""What ends at a time, where all get the same time from when they are added."""

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Timed(Hashable, Protocol):
    """Has a deadline, which does not change while it is kept here."""

    deadline: float


T = TypeVar("T", bound=Timed)


class Deadlines(Generic[T]):
    """Keeps entries in the order of their deadlines, which is that of adding them."""

    def __init__(self) -> None:
        self._entries: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, *entries: T) -> None:
        self._entries.update(dict.fromkeys(entries))

    def remove(self, *entries: T) -> None:
        """Forget them.

        Raises:
            KeyError: one is not here.
        """
        for entry in entries:
            del self._entries[entry]

    def due(self, now: float) -> list[T]:
        """Those whose deadline has come, the earliest first; they stay here."""
        due = []
        for entry in self._entries:
            if entry.deadline > now:
                break
            due.append(entry)
        return due
