"""Whether, and after how long, a dead process is restarted. Pure: time is an argument."""

QUICK_SECONDS = 10.0
"""A process that lives for less than this died quickly."""
LIMIT = 3
"""Quick deaths in a row after which it is not restarted."""
FIRST_SECONDS = 0.2
LONGEST_SECONDS = 5.0


class RestartPolicy:
    """Restart policy of one process."""

    def __init__(self) -> None:
        self._quick = 0

    def died(self, lived_seconds: float) -> float | None:
        """Return the seconds to wait before restarting it; None: do not."""
        self._quick = self._quick + 1 if lived_seconds < QUICK_SECONDS else 0
        if self._quick >= LIMIT:
            return None
        return min(LONGEST_SECONDS, FIRST_SECONDS * 4.0**self._quick)
