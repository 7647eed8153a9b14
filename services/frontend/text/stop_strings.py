"""Finds stop strings in text that arrives in pieces."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of scanning one piece of text."""

    text: str
    """Text that cannot be part of a stop string any more, following what was returned before."""
    stop: str | None = None
    """The stop string that was found; the output ends before it."""


class StopScanner:
    """Finds the first stop string to be completed, and releases text as early as is safe.

    Among stop strings completed by the same character the longest wins, so the result does not
    depend on how the text was split. Exactly the longest end of the text that begins a stop string
    is held back.
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
