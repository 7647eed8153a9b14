"""How many retries an upstream gets: a share of its requests. Pure."""

SHARE = 0.2
"""Retries per request."""
_SAVED = 10.0
"""Most retries that requests without any save up; as many are there in the beginning."""


class RetryBudget:
    """Allows `SHARE` retries per request, and a few at once, so that a failing upstream is not
    asked several times as often as a healthy one."""

    def __init__(self) -> None:
        self._saved = _SAVED

    def add_request(self) -> None:
        """Count a request."""
        self._saved = min(_SAVED, self._saved + SHARE)

    def take(self) -> bool:
        """Take one retry; return whether there was one."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
