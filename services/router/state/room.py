"""Free space of workers: sequences that run now, sequences that wait, and KV pages.

A request is placed only where all of its choices fit, so that a worker need not return any of
them. Its use is counted from its placement on: by its ticket until a report contains it, and by
reports from then on.
"""

import math
from typing import NamedTuple

LARGE_SHARE = 4
"""A request of more choices than this part of a batch may begin once that part is free, with its
other choices waiting at the worker; otherwise it would wait until nothing else runs there."""


class Room(NamedTuple):
    """The free space of a worker; infinite: it does not report it."""

    at_once: float
    """Sequences that would run now; below 0 if some wait."""
    places: float
    """Sequences that it would accept, to run or to wait."""
    large: float
    """Sequences that must be able to run for a request of more choices."""
    pages: float

    def takes(self, choices: int, pages: float) -> bool:
        """Return whether the choices of a request that decode here fit.

        Args:
            choices: number of choices.
            pages: pages that they need together.
        """
        return (
            self.at_once >= min(choices, self.large)
            and self.places >= choices
            and self.pages >= pages
        )

    def less(self, choices: int, pages: int) -> "Room":
        """Return what is left after a request with these choices and pages."""
        return self._replace(
            at_once=self.at_once - choices,
            places=self.places - choices,
            pages=self.pages - pages,
        )


UNBOUNDED = Room(math.inf, math.inf, math.inf, math.inf)


def room(max_running: int, max_sequences: int, sequences: int, free_pages: int) -> Room:
    """Return the free space of a worker.

    Args:
        max_running: most sequences that run at the same time; 0: not reported.
        max_sequences: most sequences that it accepts.
        sequences: those that it has, and those in flight to it.
        free_pages: pages that none of these is counted for.
    """
    if not max_running:
        return UNBOUNDED
    return Room(
        max_running - sequences,
        max_sequences - sequences,
        max(1, max_running // LARGE_SHARE),
        free_pages,
    )
