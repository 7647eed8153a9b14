"""How long the steps of running streams took: their times between tokens."""

from collections import defaultdict

_DIGITS = 5


class StepTimes:
    """Tokens by the duration of the step that made them, to 10 µs."""

    def __init__(self) -> None:
        self._tokens: defaultdict[float, float] = defaultdict(float)

    def add(self, seconds: float, tokens: float) -> None:
        """Count tokens that were made in steps of so many seconds."""
        self._tokens[round(seconds, _DIGITS)] += tokens

    def percentile(self, percent: float) -> float:
        """Return the duration that so many percent of tokens did not exceed; 0 without tokens."""
        wanted = sum(self._tokens.values()) * percent / 100
        durations = sorted(self._tokens)
        reached = 0.0
        for seconds in durations:
            reached += self._tokens[seconds]
            if reached >= wanted:
                return seconds
        return durations[-1] if durations else 0.0
