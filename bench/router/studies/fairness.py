"""A tenant that sends 50 times as much as another must not slow that one down."""

from collections.abc import Mapping
from typing import Any

from bench.harness.table import Table
from bench.router.studies.runs import SATURATION, of_tenants, percentile, run
from services.router.admission.waiting import QueueSettings
from simulator.config import ClusterConfig
from simulator.traces.trace import Trace
from simulator.traces.workload import split_tenants, spread

LOAD = 2.5
"""Share of saturation."""
TIMES_MORE = 50
GATES = (0.0, 0.1)
MAX_WAIT = 120.0
"""Seconds. Requests that wait longer belong to the other tenant."""
SEEDS = 4
"""Each chooses another 51st of the conversations for the small tenant."""


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:
    """Print and return the small tenant's times to first token, alone and with the other."""
    table = Table(
        ("cluster", "<8"),
        ("gate s", "6.2f"),
        ("requests", "8,d"),
        ("alone p50", "9.2f"),
        ("p99", "6.2f"),
        ("beside p50", "10.2f"),
        ("p99", "6.2f"),
        ("p99 times", "9.2f"),
    )
    found = []
    for cluster, config in clusters.items():
        for gate in GATES:
            alone: list[float] = []
            beside: list[float] = []
            for seed in range(SEEDS):
                shares = (1.0, TIMES_MORE)
                both = spread(split_tenants(trace, 2, seed, shares), seed)
                settings = QueueSettings(gate=gate, max_wait=MAX_WAIT)
                for workload, ttfts in ((of_tenants(both, ["tenant-0"]), alone), (both, beside)):
                    done = run(workload, config, LOAD * SATURATION, settings=settings, seed=seed)
                    ttfts += [one.ttft for one in done.requests if one.tenant == "tenant-0"]
            row = [percentile(ttfts, q) for ttfts in (alone, beside) for q in (0.5, 0.99)]
            table.row(cluster, gate, len(alone), *row, row[3] / row[1])
            found.append({"cluster": cluster, "gate": gate, "alone": row[:2], "beside": row[2:]})
    return found
