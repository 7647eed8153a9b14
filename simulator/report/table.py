"""Outcomes as lines on standard output, each printed as soon as it is known."""

import math

from services.router.recording.records import RecordedAnswer
from simulator.policies.catalog import POLICIES
from simulator.replay import Replayed
from simulator.run import RunOutcome

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
    print("  ".join(f"{name:{_align(name)}{width}}" for name, width in _COLUMNS), flush=True)


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
    print(
        "  ".join(
            f"{value:{_align(name)}{width}}"
            for value, (name, width) in zip(values, _COLUMNS, strict=True)
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
    return "<" if name == "policy" else ">"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "never"
