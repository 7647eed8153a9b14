"""Tenants of weights 1, 2 and 4 that always have waiting requests receive tokens as 1 : 2 : 4."""

from collections.abc import Mapping
from typing import Any

from bench.harness.table import Table
from bench.router.studies.runs import run
from services.router.admission.shares.fairness import FairShares
from services.router.admission.waiting import QueueSettings
from simulator.config import ClusterConfig
from simulator.policies.baton_queue import TenantAdmission
from simulator.traces.trace import Trace
from simulator.traces.workload import split_tenants, spread

WEIGHTS = {"tenant-0": 1.0, "tenant-1": 2.0, "tenant-2": 4.0}
MULTIPLE = 8.0
"""High enough that a third of it exceeds four sevenths of the workers' capacity."""
WARM_UP = 30.0
"""Seconds until requests of all tenants wait."""
SETTINGS = QueueSettings(max_tenant=100_000, max_total=100_000, max_wait=240.0)


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:
    """Print and return the tokens of each tenant while requests arrived."""
    table = Table(
        ("cluster", "<8"),
        ("tenant", "<8"),
        ("weight", "6.0f"),
        ("tokens", "12,d"),
        ("share", "7.3f"),
    )
    found = []
    shares = FairShares()
    workload = spread(split_tenants(trace, len(WEIGHTS), 0), 0)
    until = workload.seconds / MULTIPLE
    for cluster, config in clusters.items():
        tenants = {name: TenantAdmission(weight) for name, weight in WEIGHTS.items()}
        done = run(workload, config, MULTIPLE, settings=SETTINGS, tenants=tenants)
        tokens = dict.fromkeys(WEIGHTS, 0)
        for one in done.requests:
            if WARM_UP <= one.arrival + one.ttft <= until:
                uncached = max(1, one.prompt_tokens - one.cached_blocks * trace.block_tokens)
                tokens[one.tenant] += shares.cost(uncached, one.output_tokens)
        for name, weight in WEIGHTS.items():
            share = tokens[name] / sum(tokens.values()) * sum(WEIGHTS.values())
            table.row(cluster, name, weight, tokens[name], share)
            found.append({"cluster": cluster, "weight": weight, "tokens": tokens[name]})
    return found
