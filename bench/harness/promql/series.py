"""Time series by labels, and exposition text that becomes samples."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
"""Names and values; the name of the metric is the label `__name__`."""
Sample = tuple[float, float]
"""Seconds and value."""
KEPT_SAMPLES = 4096
"""Most samples of one series; the oldest are dropped."""


class SeriesStore:
    """Samples of series, appended in the order of their times."""

    def __init__(self) -> None:
        self._series: dict[Labels, deque[Sample]] = {}

    @property
    def names(self) -> set[str]:
        """Names of the metrics."""
        return {dict(found)["__name__"] for found in self._series}

    def add(self, name: str, at: float, value: float, **others: str) -> None:
        """Append one sample of the metric `name`, at `at` seconds."""
        self._append(frozenset({("__name__", name), *others.items()}), at, value)

    def scrape(self, text: str, at: float, **target: str) -> None:
        """Append all samples of an exposition, with the labels of its target."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                given = {**sample.labels, **target, "__name__": sample.name}
                self._append(frozenset(given.items()), at, sample.value)

    def select(
        self, matches: Callable[[Mapping[str, str]], bool], start: float, end: float
    ) -> Iterable[tuple[Labels, list[Sample]]]:
        """Yield the series that match and have samples after `start`, until `end` inclusive."""
        for found, samples in self._series.items():
            if matches(dict(found)):
                within = [one for one in samples if start < one[0] <= end]
                if within:
                    yield found, within

    def _append(self, found: Labels, at: float, value: float) -> None:
        self._series.setdefault(found, deque(maxlen=KEPT_SAMPLES)).append((at, value))
