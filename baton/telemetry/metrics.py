"""Metrics: each family is declared by its owner; /metrics shows the registry of all families of a
process.

Names begin with `baton_` and contain units (`_seconds`, `_bytes`, `_total`), and no label takes
values that users choose freely.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import prometheus_client
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Metric,
    generate_latest,
)
from prometheus_client.openmetrics import exposition

from baton.telemetry.scope import PROCESS, TelemetryScope, current

# Otherwise each counter and histogram has a series with the time when it was made.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

M = TypeVar("M", prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)


class _Family(Generic[M]):
    """A declared family: module-level, and counted per telemetry scope.

    In the process's own scope it exists, and shows at /metrics, from its declaration on; in another
    scope from its first use there.
    """

    _kind: type[M]

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), **options: Any
    ) -> None:
        self._make: partial[M] = partial(self._kind, name, documentation, labels, **options)
        self._of_process: M = self._make(registry=PROCESS.registry)
        self._series: dict[tuple[str, ...], M] = {}
        """Series of the process's own scope by label values: the library's lookup costs ten times
        as much."""

    def labels(self, *values: str) -> M:
        """Return the series of these label values in the current scope."""
        if current() is not PROCESS:
            return self._here().labels(*values)
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = self._of_process.labels(*values)
        return series

    def remove(self, *values: str) -> None:
        """Remove the series of these label values in the current scope, if it exists."""
        if current() is PROCESS:
            self._series.pop(values, None)
        self._here().remove(*values)

    def _here(self) -> M:
        scope = current()
        if scope is PROCESS:
            return self._of_process
        family: M | None = scope.families.get(self)
        if family is None:
            family = scope.families[self] = self._make(registry=scope.registry)
        return family


class Counter(_Family[prometheus_client.Counter]):
    """A number that only grows."""

    _kind = prometheus_client.Counter

    def inc(self, amount: float = 1) -> None:
        self._here().inc(amount)


class Gauge(_Family[prometheus_client.Gauge]):
    """A number that goes up and down."""

    _kind = prometheus_client.Gauge

    def inc(self, amount: float = 1) -> None:
        self._here().inc(amount)

    def dec(self, amount: float = 1) -> None:
        self._here().dec(amount)

    def set(self, value: float) -> None:
        self._here().set(value)


class Histogram(_Family[prometheus_client.Histogram]):
    """A distribution over `buckets`."""

    _kind = prometheus_client.Histogram

    def observe(self, value: float) -> None:
        self._here().observe(value)


def latency_buckets() -> Sequence[float]:
    """Return buckets in seconds for latencies between processes, 0.5 ms to 10 s."""
    return (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class _Labelled(CollectorRegistry):
    """A scope's registry as it is shown: each series has the scope's labels besides its own."""

    def __init__(self, scope: TelemetryScope) -> None:
        super().__init__()
        self._scope = scope

    def collect(self) -> Iterator[Metric]:
        labels = self._scope.labels
        for family in self._scope.registry.collect():
            if labels:
                family.samples = [
                    sample._replace(labels={**labels, **sample.labels}) for sample in family.samples
                ]
            yield family


def call_buckets() -> Sequence[float]:
    """Return buckets in seconds for whole client calls, including streams, 1 ms to 5 min."""
    return (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


def render(*, openmetrics: bool = False) -> tuple[bytes, str]:
    """Return the current scope's metrics, and their content type.

    Args:
        openmetrics: in OpenMetrics, which has exemplars, instead of Prometheus' text format. Not of
            a scope with names such as `vllm:x`, which the library would write as `vllm_x`.
    """
    shown = _Labelled(current())
    if openmetrics and not any(":" in family.name for family in shown.collect()):
        text: bytes = exposition.generate_latest(shown)  # type: ignore[no-untyped-call]
        return text, exposition.CONTENT_TYPE_LATEST
    return generate_latest(shown), CONTENT_TYPE_LATEST
