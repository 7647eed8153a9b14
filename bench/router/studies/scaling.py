"""Three hours on a pool that scales: a day's curve, silence and a burst, under several scalers.

The smallest fixed pool that keeps the target is what the others are compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.harness.table import Table
from bench.router.studies.shapes import make
from services.router.sizing.settings import SizingSettings
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel
from simulator.policies.catalog import POLICIES
from simulator.run import Targets
from simulator.scaling.config import ScalingConfig
from simulator.scaling.run import ScalingOutcome, simulate_scaling
from simulator.traces.curve import Burst, LoadCurve, TimeSpan, follow_curve, repeat
from simulator.traces.trace import Trace

HOURS = 3.0
REQUESTS = 36_000
DAY = LoadCurve(
    3600 * HOURS,
    peak=7.0,
    quiet=(TimeSpan(7_800.0, 9_000.0),),
    bursts=(Burst(2_400.0, 3_000.0, 4.0),),
)
CONSTANT = LoadCurve(3600 * HOURS)
CONSTANT_REQUESTS = 12_000
PREFILL_RATE = 1_000.0
"""Tokens per second of a worker: a prompt takes 1.2 s, so that 16 workers carry the burst."""
MOST = 40
SIZING = SizingSettings(max_replicas=MOST, ttft_target=5.0)
CARRIED = Targets()
"""Of times to first token: what the smallest fixed pool keeps."""
FEWEST_FIXED, MOST_FIXED = 8, 24


@dataclass(frozen=True, slots=True)
class Row:
    """A way to scale, under a load."""

    name: str
    scaling: ScalingConfig
    constant: bool = False


ROWS = (
    Row("needed replicas", ScalingConfig(sizing=SIZING)),
    Row("needed, zero after 5 min", ScalingConfig(sizing=replace(SIZING, idle_seconds=300.0))),
    Row(
        "needed, 6 replicas lost",
        ScalingConfig(sizing=SIZING, failures=tuple(1_500.0 * number for number in range(1, 7))),
    ),
    Row("needed, metrics away", ScalingConfig(sizing=SIZING, blind=(6_000.0, 7_200.0))),
    Row("queue length", ScalingConfig(scaler="queue", sizing=SIZING)),
    Row("needed, constant load", ScalingConfig(sizing=SIZING), constant=True),
)


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:  # noqa: ARG001  # as other studies have it
    """Print and return what each scaler costs, and what it attains; the trace is not used."""
    requests = make("conversations", 0)
    day = follow_curve(repeat(requests, REQUESTS), DAY, 0)
    constant = follow_curve(repeat(requests, CONSTANT_REQUESTS), CONSTANT, 0)
    table = Table(
        ("scaler", "<24"),
        ("in time %", "9.2f"),
        ("p90 s", "6.2f"),
        ("p99 s", "6.2f"),
        ("worker h", "8.1f"),
        ("of fixed", "8.2f"),
        ("most", "4d"),
        ("starts", "6d"),
        ("stops", "5d"),
        ("reversals", "9d"),
    )
    found = []

    def show(name: str, outcome: ScalingOutcome, fixed: ScalingOutcome | None) -> None:
        table.row(
            name,
            100 * outcome.in_time,
            outcome.p90,
            outcome.p99,
            outcome.worker_hours,
            outcome.worker_hours / fixed.worker_hours if fixed is not None else "",
            outcome.peak,
            outcome.starts,
            outcome.stops,
            outcome.reversals,
        )
        found.append({"scaler": name, **{one: getattr(outcome, one) for one in _KEPT}})

    fixed = smallest_fixed(day)
    show(f"fixed, {fixed.peak}", fixed, fixed)
    for row in ROWS:
        workload = constant if row.constant else day
        show(row.name, run(workload, row.scaling, 1), None if row.constant else fixed)
    return found


_KEPT = ("in_time", "p90", "p99", "worker_hours", "peak", "starts", "stops", "reversals", "sizes")


def smallest_fixed(trace: Trace) -> ScalingOutcome:
    """Return the run with the fewest replicas that carry the load, by bisection."""
    fixed = ScalingConfig(scaler="fixed", sizing=SIZING)
    low, high = FEWEST_FIXED - 1, MOST_FIXED
    best = run(trace, fixed, high)
    while high - low > 1:
        middle = (low + high) // 2
        outcome = run(trace, fixed, middle)
        if outcome.p90 <= CARRIED.p90 and outcome.p99 <= CARRIED.p99:
            best, high = outcome, middle
        else:
            low = middle
    return best


def run(trace: Trace, scaling: ScalingConfig, started: int) -> ScalingOutcome:
    """Run the requests on combined workers, of which so many are there at the beginning."""
    config = ClusterConfig(
        workers=started if scaling.scaler == "fixed" else MOST,
        started_workers=started,
        costs=CostModel(prefill_rate=PREFILL_RATE),
    )
    return simulate_scaling(trace, config, POLICIES["baton-queue"], scaling)
