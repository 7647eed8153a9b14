"""Whether a process that died is restarted, and after how long. Pure: time comes in."""

QUICK_SECONDS = 10.0
"""A process that lives shorter than this died quickly."""
LIMIT = 3
"""After so many quick deaths in a row it is not restarted."""
FIRST_SECONDS = 0.2
LONGEST_SECONDS = 5.0


class RestartPolicy:
    """The restarts of one process."""

    def __init__(self) -> None:
        self._quick = 0

    def died(self, lived_seconds: float) -> float | None:
        """Return the seconds to wait before restarting it; None: do not."""
        self._quick = self._quick + 1 if lived_seconds < QUICK_SECONDS else 0
        if self._quick >= LIMIT:
            return None
        return min(LONGEST_SECONDS, FIRST_SECONDS * 4.0**self._quick)
