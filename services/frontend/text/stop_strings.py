"""Stop strings over text that arrives in pieces."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scanned:
    """What one piece of text made certain."""

    text: str
    """Text that no stop string can contain any more, in order after what was given before."""
    stop: str | None = None
    """The stop string that was found; the output ends before it."""


class StopScanner:
    """Finds the first stop string to be completed, and gives text back as early as is safe.

    Of stop strings that are completed by the same character the longest wins, so the result does
    not depend on how the text was cut into pieces. Held back is exactly the longest end of the
    text that is the beginning of a stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Look for `stops`, none of which is empty."""
        self._stops = tuple(stops)
        self._held = ""

    def push(self, piece: str) -> Scanned:
        """Add text. Nothing may be pushed after a stop string was found."""
        text = self._held + piece
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0:
                candidate = (start + len(stop), start, stop)
                best = candidate if best is None else min(best, candidate)
        if best is not None:
            self._held = ""
            return Scanned(text[: best[1]], best[2])
        certain = len(text) - self._hold(text)
        self._held = text[certain:]
        return Scanned(text[:certain])

    def flush(self) -> str:
        """Return the text that is held back, when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _hold(self, text: str) -> int:
        hold = 0
        for stop in self._stops:
            # The longest end of the text, shorter than the stop string, that begins it.
            at = max(0, len(text) - len(stop) + 1)
            while (at := text.find(stop[0], at)) >= 0:
                if stop.startswith(text[at:]):
                    hold = max(hold, len(text) - at)
                    break
                at += 1
        return hold
