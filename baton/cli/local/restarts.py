"""Whether a process that died is started again, and after how long. Pure: time comes in."""

QUICK_SECONDS = 10.0
"""A process that lives shorter than this died quickly."""
LIMIT = 3
"""After so many quick deaths in a row it is given up."""
FIRST_SECONDS = 0.2
LONGEST_SECONDS = 5.0


class Restarts:
    """The deaths of one process."""

    def __init__(self) -> None:
        self._quick = 0

    def died(self, lived_seconds: float) -> float | None:
        """Seconds to wait before starting it again; None: give it up."""
        self._quick = self._quick + 1 if lived_seconds < QUICK_SECONDS else 0
        if self._quick >= LIMIT:
            return None
        return min(LONGEST_SECONDS, FIRST_SECONDS * 4.0**self._quick)
