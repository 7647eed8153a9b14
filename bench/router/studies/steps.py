"""Duration of running streams' steps next to prompts, at a load below saturation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.harness.table import Table
from bench.router.studies.runs import run
from services.router.policy.costs import Policy
from simulator.config import ClusterConfig
from simulator.model.costs import Beside
from simulator.traces.trace import Trace

ROWS: tuple[tuple[Beside, int, float], ...] = (
    ("longer", 512, 2.25),
    ("longer", 320, 2.25),
    ("longer", 320, 2.15),
    ("sum", 512, 1.5),
    ("sum", 128, 0.75),
)
"""How chunk and streams determine a step (the longer of both, or their sum); prompt tokens of a
chunk (512 is the engines' default); multiple of the recorded rate."""
STREAM_SECONDS = 0.0002
"""Time to read the KV of one more stream."""


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:
    """Print and return times to first token and between tokens, by the engines' chunk."""
    table = Table(
        ("cluster", "<8"),
        ("beside", "<6"),
        ("chunk", "5d"),
        ("multiple", "8.2f"),
        ("step ms", "7.1f"),
        ("ttft p90 s", "10.2f"),
        ("p99 s", "6.2f"),
        ("itl p99 ms", "10.1f"),
        ("target ms", "9.0f"),
    )
    found = []
    for cluster, config in clusters.items():
        for beside, chunk, multiple in ROWS:
            costs = replace(
                config.costs, chunk_tokens=chunk, stream_seconds=STREAM_SECONDS, beside=beside
            )
            step = 1e3 * costs.mixed_step_seconds(chunk / costs.prefill_rate, 1)
            one = run(trace, replace(config, costs=costs), multiple).outcome
            target, itl = 1e3 * Policy().itl_target, 1e3 * one.itl_p99
            table.row(cluster, beside, chunk, multiple, step, one.p90, one.p99, itl, target)
            found.append({"cluster": cluster, "beside": beside, "chunk": chunk, "itl_ms": itl})
    return found
