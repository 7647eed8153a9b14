"""The conversation trace on different clusters: whether the queue meets its goals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.harness.table import Table
from bench.router.studies.runs import run
from simulator.config import ClusterConfig
from simulator.traces.trace import Trace
from simulator.traces.workload import hot_prefix, split_tenants, spread


def _same(trace: Trace) -> Trace:
    return trace


@dataclass(frozen=True, slots=True)
class Row:
    """A trace and a cluster that differ from the recorded ones."""

    name: str
    multiple: float
    """The target multiple of the rate."""
    workload: Callable[[Trace], Trace] = _same
    cluster: Callable[[ClusterConfig], ClusterConfig] = lambda config: config
    both: bool = True
    """Whether the target applies to combined workers too, not only to pools."""


ROWS = (
    Row("recorded", 2.25),
    Row("spread", 2.25, lambda trace: spread(trace, 0)),
    Row("one hot prefix", 2.25, hot_prefix),
    Row("1 of 8 at half speed", 2.05, cluster=lambda config: replace(config, slow_workers=1)),
    Row("caches a tenth", 1.5, cluster=lambda config: replace(config, cache_tokens=300_000)),
    Row(
        "4 prefill + 4 decode",
        0.88,
        cluster=lambda config: replace(config, workers=4, decode_workers=4),
        both=False,
    ),
    Row("32 equal tenants", 2.1, lambda trace: split_tenants(trace, 32, 0)),
    Row("events 0.5 s late", 2.25, cluster=lambda config: replace(config, event_delay=0.5)),
    Row("events 2 s late", 2.25, cluster=lambda config: replace(config, event_delay=2.0)),
    Row("reports 0.5 s apart", 2.25, cluster=lambda config: replace(config, report_interval=0.5)),
    Row(
        "1 s apart, 50 ms late",
        2.25,
        cluster=lambda config: replace(config, report_interval=1.0, report_delay=0.05),
    ),
)


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:
    """Print and return times to first token at the target multiples."""
    table = Table(
        ("cluster", "<8"),
        ("row", "<20"),
        ("multiple", "8.2f"),
        ("p50 s", "6.2f"),
        ("p90 s", "6.2f"),
        ("p99 s", "6.2f"),
        ("carried", "<7"),
    )
    found = []
    for row in ROWS:
        workload = row.workload(trace)
        for cluster, config in clusters.items():
            if row.both or config.pools:
                one = run(workload, row.cluster(config), row.multiple).outcome
                carried = "yes" if one.carried else "no"
                table.row(cluster, row.name, row.multiple, one.p50, one.p90, one.p99, carried)
                found.append({"cluster": cluster, "row": row.name, "p90": one.p90, "p99": one.p99})
    return found
