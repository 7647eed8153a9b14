"""How many lines of batches a frontend runs at once: what its router says, within a setting."""

from collections.abc import Callable

from services.frontend.metrics import LINE_ROOM

_UNTOLD = 64
"""Lines while no router has said anything."""


def _no_one() -> None:
    """Ignore it."""


class LineRoom:
    """Lives on the event loop.

    Args:
        most: maximum number of lines.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._told: int | None = None
        LINE_ROOM.set(self.lines)
        self.on_more: Callable[[], None] = _no_one
        """Called when there is room for more lines than before."""

    @property
    def lines(self) -> int:
        """Return how many lines may run now. Those that run already go on if there are more."""
        return min(self.most, _UNTOLD if self._told is None else self._told)

    def tell(self, lines: int | None) -> None:
        """Apply what the router says; None: there is no router."""
        before, self._told = self.lines, lines
        LINE_ROOM.set(self.lines)
        if self.lines > before:
            self.on_more()
