"""What workers have room for: sequences that run at once, sequences that wait, and KV pages.

A request is placed only where all of its choices have room, so that a worker need not hand any of
them back. What it takes is counted from its placement on: by its ticket until a report contains
it, and by reports from then on.
"""

import math
from typing import NamedTuple

LARGE_SHARE = 4
"""A request of more choices than one in so many of a batch may begin once that part is free; its
other choices wait at the worker, for else it would wait until nothing else runs there."""


class Room(NamedTuple):
    """What a worker may be sent; infinite: it does not say."""

    at_once: float
    """Sequences that would run at once; below 0 where some wait."""
    places: float
    """Sequences that it would take, to run or to wait."""
    large: float
    """Of a request of more choices, so many have to run at once."""
    pages: float

    def takes(self, choices: int, pages: float) -> bool:
        """Return whether it has room for the choices of a request that decode here.

        Args:
            choices: how many.
            pages: that they need together.
        """
        return (
            self.at_once >= min(choices, self.large)
            and self.places >= choices
            and self.pages >= pages
        )

    def less(self, choices: int, pages: int) -> "Room":
        """Return what is left once a request of so many choices and pages is sent."""
        return self._replace(
            at_once=self.at_once - choices,
            places=self.places - choices,
            pages=self.pages - pages,
        )


UNBOUNDED = Room(math.inf, math.inf, math.inf, math.inf)


def room(max_running: int, max_sequences: int, sequences: int, free_pages: int) -> Room:
    """Return what a worker has room for.

    Args:
        max_running: sequences that run at once; 0: it does not say.
        max_sequences: sequences that it takes.
        sequences: that it has, and that are on their way to it.
        free_pages: that none of these is counted for.
    """
    if not max_running:
        return UNBOUNDED
    return Room(
        max_running - sequences,
        max_sequences - sequences,
        max(1, max_running // LARGE_SHARE),
        free_pages,
    )
