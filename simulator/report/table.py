"""Outcomes as lines on standard output, each printed as soon as it is known."""

import math
from collections.abc import Sequence

from services.router.recording.records import RecordedAnswer
from simulator.policies.catalog import POLICIES
from simulator.replay import Replayed
from simulator.run import RunOutcome
from simulator.scaling.run import ScalingOutcome

_COLUMNS = (
    ("policy", 24),
    ("multiple", 8),
    ("p50 s", 7),
    ("p90 s", 7),
    ("p99 s", 7),
    ("cached %", 8),
    ("busy %", 6),
    ("ITL p99 ms", 10),
    ("refused", 7),
)


def print_header() -> None:
    """Print the names of the columns."""
    _print_cells(_COLUMNS, [name for name, _ in _COLUMNS])


def print_row(outcome: RunOutcome) -> None:
    """Print one run."""
    values = (
        POLICIES[outcome.policy].title,
        f"{outcome.multiple:.2f}",
        _seconds(outcome.p50),
        _seconds(outcome.p90),
        _seconds(outcome.p99),
        f"{100 * outcome.hit_share:.1f}",
        f"{100 * outcome.busy_share:.1f}",
        f"{1e3 * outcome.itl_p99:.1f}",
        str(outcome.requests - outcome.finished),
    )
    _print_cells(_COLUMNS, values)


_SCALING_COLUMNS = (
    ("policy", 24),
    ("scaler", 6),
    ("in time %", 9),
    ("p50 s", 7),
    ("p90 s", 7),
    ("p99 s", 7),
    ("worker h", 8),
    ("most", 4),
    ("starts", 6),
    ("stops", 5),
    ("reversals", 9),
    ("never", 5),
)


def print_scaling_header() -> None:
    """Print the names of the columns of runs on pools that scale."""
    _print_cells(_SCALING_COLUMNS, [name for name, _ in _SCALING_COLUMNS])


def print_scaling_row(outcome: ScalingOutcome) -> None:
    """Print one run on a pool that scales."""
    values = [
        POLICIES[outcome.policy].title,
        outcome.scaler,
        f"{100 * outcome.in_time:.1f}",
        _seconds(outcome.p50),
        _seconds(outcome.p90),
        _seconds(outcome.p99),
        f"{outcome.worker_hours:.1f}",
        str(outcome.peak),
        str(outcome.starts),
        str(outcome.stops),
        str(outcome.reversals),
        str(outcome.requests - outcome.finished),
    ]
    _print_cells(_SCALING_COLUMNS, values)


def _print_cells(columns: Sequence[tuple[str, int]], values: Sequence[str]) -> None:
    print(
        "  ".join(
            f"{value:{_align(name)}{width}}"
            for value, (name, width) in zip(values, columns, strict=True)
        ),
        flush=True,
    )


def print_failure(policy: str, lowest: float) -> None:
    """Print that a policy does not sustain even the lowest load that was tried."""
    print(f"{POLICIES[policy].title:<24}  {f'< {lowest:.2f}':>8}", flush=True)


def print_replayed(replayed: Replayed) -> None:
    """Print whether a replay of a recorded run returned the same results."""
    difference = replayed.difference
    if difference is None:
        print(f"{replayed.answers} answers of {replayed.records} records are identical.")
        return
    print(f"Answer {replayed.answers}, record {replayed.records}, is another one.")
    print(f"recorded: {_answer(difference.recorded)}")
    print(f"replayed: {_answer(difference.replayed)}")


def _answer(answer: RecordedAnswer | None) -> str:
    if answer is None:
        return "none"
    if answer.refused:
        return f"request {answer.number} refused, {answer.refused}"
    if not answer.decode:
        return f"request {answer.number} waits"
    prefill = f" prefill {answer.prefill}" if answer.prefill else ""
    return f"request {answer.number} ticket {answer.ticket}{prefill} decode {answer.decode}"


def _align(name: str) -> str:
    return "<" if name in ("policy", "scaler") else ">"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "never"
