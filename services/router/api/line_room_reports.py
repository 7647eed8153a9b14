"""Tells frontends how many lines of batches workers would run."""

import asyncio
import math

from services.router import metrics
from services.router.api.claims import Asker
from services.router.state.class_places import class_places
from services.router.state.fleet import Fleet

_BATCH_RANK = 2
_SECONDS = 0.1
"""Between two looks."""
_LEAST = 8
"""Lines of a frontend that may run or wait while workers have no place: classes with floors and
models whose workers start on demand are served because requests wait."""


class LineRoomReports:
    """Frontends that run lines, each of which is told its part when it changes. Lives on the event
    loop; looks at the workers only while there are such frontends.

    Args:
        fleet: the workers.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._askers: dict[int, tuple[Asker, int]] = {}
        """Sessions by number, and what each was told."""
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, asker: Asker) -> None:
        """Tell a session from now on."""
        self._askers[asker.number] = asker, 0
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def end(self, number: int) -> None:
        """Forget a session."""
        self._askers.pop(number, None)

    def _tell(self) -> None:
        self._timer = None
        if not self._askers:
            return
        places = class_places(self._fleet, _BATCH_RANK)
        if places is not None:
            metrics.LINE_ROOM.set(places)
            part = max(_LEAST, math.ceil(places / len(self._askers)))
            for number, (asker, told) in self._askers.items():
                if part != told:
                    self._askers[number] = asker, part
                    asker.frame().line_room.lines = part
                    asker.flush()
        self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._tell)
