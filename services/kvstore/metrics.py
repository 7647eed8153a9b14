"""What the store shows at /metrics: read from its state when somebody asks, so always exact."""

from collections.abc import Iterable

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.kvstore.store import Store

_GAUGES = {
    "capacity_bytes": "Arena bytes that can hold objects.",
    "committed_bytes": "Bytes of committed objects.",
    "objects": "Committed objects.",
    "leases": "Live leases.",
    "reservations": "Slots reserved and not yet committed.",
    "quarantined": "Slots of lapsed writers that are not proven dead.",
    "waiters": "Wants that wait.",
    "sessions": "Open Put and Get streams.",
}
_COUNTERS = {
    "hits": "Objects answered.",
    "misses": "Objects answered as missing.",
    "bad_objects": "Objects dropped because a reader's verification failed.",
    "evictions": "Objects evicted.",
}


class StoreMetrics(Collector):
    """Families `baton_kv_*`. Use as a context manager: registered while the store lives."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> "StoreMetrics":
        REGISTRY.register(self)
        return self

    def __exit__(self, *_: object) -> None:
        REGISTRY.unregister(self)

    def collect(self) -> Iterable[Metric]:
        # Another thread asks; a count may be one event old, and none is torn.
        stat = self._store.stat()
        pinned = self._store.table.pinned_bytes
        yield GaugeMetricFamily("baton_kv_pinned_bytes", "Bytes leased or reserved.", pinned)
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"baton_kv_{name}", text, getattr(stat, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"baton_kv_{name}", text, getattr(stat, name))
        moved = CounterMetricFamily(
            "baton_kv_moved_bytes", "Bytes that travelled through the store.", labels=["way"]
        )
        for way, size in self._store.moved_bytes.items():
            moved.add_metric([way], size)
        yield moved
