"""Four times the recorded rate, with targets: rejected requests, and others in time."""

from collections.abc import Mapping
from typing import Any

from bench.harness.table import Table
from bench.router.studies.runs import run
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from simulator.config import ClusterConfig
from simulator.traces.trace import Trace
from simulator.traces.workload import spread

MULTIPLE = 4.0
TARGETS = (5.0, 10.0, 30.0)
LONG = 16_000
"""A prompt with more tokens is long."""


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:
    """Print and return the results of the requests."""
    table = Table(
        ("cluster", "<8"),
        ("times", "<8"),
        ("target s", "8.0f"),
        ("accepted %", "10.1f"),
        ("in time %", "9.1f"),
        ("short served %", "14.1f"),
        ("long served %", "13.1f"),
        ("long / short", "12.2f"),
    )
    found = []
    for times, workload in {"recorded": trace, "spread": spread(trace, 0)}.items():
        for cluster, config in clusters.items():
            for target in TARGETS:
                admission = AdmissionPolicy({0: ClassAdmission(ttft_target=target)})
                done = run(workload, config, MULTIPLE, admission=admission)
                accepted = [one for one in done.requests if one.worker >= 0]
                in_time = sum(one.ttft <= target for one in accepted) / len(accepted)
                served = []
                for is_long in (False, True):
                    of_kind = [
                        one for one in done.requests if (one.prompt_tokens > LONG) is is_long
                    ]
                    served.append(sum(one.worker >= 0 for one in of_kind) / len(of_kind))
                row = [len(accepted) / len(done.requests), in_time, *served]
                ratio = served[1] / served[0]
                table.row(cluster, times, target, *(100 * one for one in row), ratio)
                found.append({"cluster": cluster, "times": times, "target": target, "row": row})
    return found
