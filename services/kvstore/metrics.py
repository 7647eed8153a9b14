"""The store's metrics, read from its state on every scrape."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.tiers import tier_name
from baton.telemetry import scope
from services.kvstore.api import admin
from services.kvstore.store import Store

_GAUGES = {
    "capacity_bytes": "Arena bytes available for objects.",
    "committed_bytes": "Bytes of committed objects.",
    "objects": "Committed objects.",
    "leases": "Live leases.",
    "reservations": "Slots reserved and not yet committed.",
    "quarantined": "Slots whose reservation expired while the writer may still be alive.",
    "waiters": "Reads that wait for objects.",
    "sessions": "Open Put and Get streams.",
}
_COUNTERS = {
    "hits": "Objects leased to readers or read from the index.",
    "misses": "Objects reported missing.",
    "bad_objects": "Objects dropped because a reader found a wrong digest.",
    "evictions": "Objects evicted.",
}

_TIER: dict[str, tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str]] = {
    "capacity_bytes": (GaugeMetricFamily, "Bytes available for objects, by tier."),
    "used_bytes": (GaugeMetricFamily, "Bytes in use, by tier."),
    "objects": (GaugeMetricFamily, "Objects, by tier."),
    "evictions": (CounterMetricFamily, "Objects evicted to free space, by tier."),
    "bad_objects": (
        CounterMetricFamily,
        "Objects dropped because their bytes were wrong, by tier.",
    ),
}
_DISK_COUNTERS = {
    "read_bytes": "Bytes loaded from disk.",
    "written_bytes": "Bytes spilled to disk.",
    "errors": "Batches of disk reads or writes that failed.",
}
MAX_TENANT_LABELS = 100


class StoreMetrics(Collector):
    """Families `baton_kv_*`. Use as a context manager: registered while the store lives.

    Scraped on another thread: a count may be one event old, but is never torn.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._registry = scope.current().registry

    def __enter__(self) -> "StoreMetrics":
        self._registry.register(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._registry.unregister(self)

    def collect(self) -> Iterable[Metric]:
        stat = admin.stat(self._store)
        pinned = self._store.table.pinned_bytes
        yield GaugeMetricFamily("baton_kv_pinned_bytes", "Bytes leased or reserved.", pinned)
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"baton_kv_{name}", text, getattr(stat, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"baton_kv_{name}", text, getattr(stat, name))
        moved = CounterMetricFamily(
            "baton_kv_moved_bytes",
            "KV bytes transferred by writers, readers and peers.",
            labels=["way", "transport"],
        )
        for (way, transport), size in self._store.moved_bytes.items():
            moved.add_metric([way, transport], size)
        yield moved
        failures = CounterMetricFamily(
            "baton_kv_peer_failures",
            "Failed transfers from other stores.",
            labels=["transport"],
        )
        for transport, count in self._store.peer_failures.items():
            failures.add_metric([transport], count)
        yield failures
        yield from _by_tier(stat)
        yield _by_tenant(stat)
        yield from self._disk()

    def _disk(self) -> Iterable[Metric]:
        failed = bool(self._store.disk_failed)
        yield GaugeMetricFamily(
            "baton_kv_disk_failed",
            "1 if a disk tier is configured and disabled because it failed.",
            failed,
        )
        yield CounterMetricFamily(
            "baton_kv_disk_spilled",
            "Objects evicted from memory that stay on disk; other evicted objects are lost.",
            self._store.events.spilled,
        )
        if self._store.disk is not None:
            counts = self._store.disk.counts
            for name, text in _DISK_COUNTERS.items():
                yield CounterMetricFamily(f"baton_kv_disk_{name}", text, getattr(counts, name))


def _by_tier(stat: pb.StatResponse) -> Iterable[Metric]:
    for name, (kind, text) in _TIER.items():
        family = kind(f"baton_kv_tier_{name}", text, labels=["tier"])
        for tier in stat.tiers:
            family.add_metric([tier_name(tier.tier)], getattr(tier, name))
        yield family


def _by_tenant(stat: pb.StatResponse) -> Metric:
    """Return the largest tenants by name and the others together, to bound the labels."""
    family = GaugeMetricFamily(
        "baton_kv_tenant_bytes", "Bytes held by a tenant, by tier.", labels=["tenant", "tier"]
    )
    others: Counter[str] = Counter()
    for number, tenant in enumerate(stat.tenants):
        if number < MAX_TENANT_LABELS:
            family.add_metric([tenant.tenant, tier_name(tenant.tier)], tenant.used_bytes)
        else:
            others[tier_name(tenant.tier)] += tenant.used_bytes
    for tier, size in others.items():
        family.add_metric(["(others)", tier], size)
    return family
