"""Sequences that are left out of steps and keep their pages for now. Pure: no clock."""

import math

from baton.engine.paged.sequence import LiveSequence


class SetAside:
    """Sequences with pages that are paused, or in the line again; first in, first out.

    Owned by the scheduler, on the engine's thread.

    Args:
        most: maximum number of pages that they keep together.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self._sequences: dict[LiveSequence, None] = {}
        self.pages = 0
        """Pages of all of them; shared ones are counted for each."""

    def __len__(self) -> int:
        return len(self._sequences)

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def __contains__(self, sequence: LiveSequence) -> bool:
        return sequence in self._sequences

    @property
    def oldest(self) -> LiveSequence:
        """Return the first sequence to lose its pages."""
        return next(iter(self._sequences))

    @property
    def too_many(self) -> bool:
        """Whether some must release their pages."""
        return self.pages > self._most

    def add(self, sequence: LiveSequence) -> None:
        """Add a sequence, whose pages stay the same until it leaves."""
        self._sequences[sequence] = None
        self.pages += len(sequence.pages)

    def discard(self, sequence: LiveSequence) -> None:
        """Remove a sequence, before its pages change; not an error if it is not a member."""
        if sequence in self._sequences:
            del self._sequences[sequence]
            self.pages -= len(sequence.pages)
