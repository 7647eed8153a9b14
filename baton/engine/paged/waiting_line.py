"""Sequences that wait for pages, in the order in which they get them. Pure: no clock."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import itemgetter

from baton.engine.paged.sequence import LiveSequence, Turn, TurnGroup

_by_turn = itemgetter(0)


class WaitingLine:
    """Waiting sequences by their turns; overdue ones move to the front of their class.

    Owned by an engine, on its thread. Adding, removing and moving to the front cost O(log n)
    comparisons.
    """

    def __init__(self) -> None:
        self._line: list[tuple[Turn, LiveSequence]] = []
        self._turns: dict[LiveSequence, Turn] = {}
        self._may_be_overdue: dict[LiveSequence, None] = {}
        """Sequences that are still sorted by their orders, the oldest first."""

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[LiveSequence]:
        """Yield the sequences in their order."""
        return (sequence for _, sequence in self._line)

    def add(self, sequence: LiveSequence, now: float) -> None:
        """Add a sequence that is not a member.

        Args:
            sequence: arrived no earlier than those added before, unless it was started.
            now: seconds on the engine's clock.
        """
        turn = self._enter(sequence, now)
        if turn[1] is TurnGroup.ORDERED:
            self._may_be_overdue[sequence] = None

    def remove(self, sequence: LiveSequence) -> None:
        """Remove a sequence.

        Raises:
            KeyError: it is not a member.
        """
        turn = self._turns.pop(sequence)
        del self._line[bisect_left(self._line, turn, key=_by_turn)]
        self._may_be_overdue.pop(sequence, None)

    def move_overdue(self, now: float) -> None:
        """Move overdue sequences to the front of their class."""
        while self._may_be_overdue:
            oldest = next(iter(self._may_be_overdue))
            if oldest.turn(now)[1] is TurnGroup.ORDERED:
                return
            self.remove(oldest)
            self._enter(oldest, now)

    def _enter(self, sequence: LiveSequence, now: float) -> Turn:
        turn = self._turns[sequence] = sequence.turn(now)
        insort(self._line, (turn, sequence), key=_by_turn)
        return turn
