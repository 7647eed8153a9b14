"""When a request is also sent to a second upstream. Pure: its callers tell it the times."""

from collections import deque

SHARE = 0.05
"""Second requests per request of the first upstream."""
_SAVED = 4.0
"""Most second requests that others without one save up."""
_SAMPLES = 200
_FEWEST = 20
"""Times to first token without which nothing is known of an upstream."""
_LATE = 0.95
"""Share of the requests that have their first token by then."""
MIN_SECONDS = 0.05


class HedgePolicy:
    """Sends at most `SHARE` of an upstream's requests to another one too: those whose first token
    is later than that of 95 % of the latest ones."""

    def __init__(self) -> None:
        self._saved = 1.0
        self._seconds: deque[float] = deque(maxlen=_SAMPLES)
        self._delay: float | None = None
        self._news = 0

    def add_request(self) -> None:
        """Count a request of the first upstream."""
        self._saved = min(_SAVED, self._saved + SHARE)

    def add_first_token(self, seconds: float) -> None:
        """Add a time to first token; of a second upstream's, those are its own."""
        self._seconds.append(seconds)
        self._news += 1
        if len(self._seconds) >= _FEWEST and (self._delay is None or self._news >= _FEWEST):
            ordered = sorted(self._seconds)
            self._delay = max(MIN_SECONDS, ordered[int(_LATE * len(ordered))])
            self._news = 0

    def delay(self) -> float | None:
        """Return the seconds without a token after which a second request pays; None: not known."""
        return self._delay

    def take(self) -> bool:
        """Take one second request; return whether there was one."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
