"""Step durations of running streams: their times between tokens."""

from collections import defaultdict

_DIGITS = 5


class StepTimes:
    """Token counts by duration of their step, to 10 µs."""

    def __init__(self) -> None:
        self._tokens: defaultdict[float, float] = defaultdict(float)

    def add(self, seconds: float, tokens: float) -> None:
        """Count tokens from steps of a duration."""
        self._tokens[round(seconds, _DIGITS)] += tokens

    def percentile(self, percent: float) -> float:
        """Return the percentile of the durations over tokens; 0 without tokens."""
        wanted = sum(self._tokens.values()) * percent / 100
        durations = sorted(self._tokens)
        reached = 0.0
        for seconds in durations:
            reached += self._tokens[seconds]
            if reached >= wanted:
                return seconds
        return durations[-1] if durations else 0.0
