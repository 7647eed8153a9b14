"""Upper bounds for Baton's figures, as ratios to others of the same run."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
PACE_TOLERANCE = 1.1
"""Steps of two systems are comparable if the ratio of their median intervals is at most this."""


@dataclass(frozen=True)
class Goal:
    """One system's figure is at most `limit` times another's, under the same load and pace."""

    load: str
    figure: str
    system: str
    other: str
    limit: float


_FIGURES: Mapping[str, tuple[str, Callable[[Row], float]]] = {
    "request": ("CPU per request", lambda row: float(row["ms_per_request"])),
    "token": ("CPU per token", lambda row: float(row["us_per_token"])),
    "ttft": ("TTFT p50", lambda row: float(row["ttft_ms"]["p50"])),
}
GOALS = (
    Goal("8 to 64", "request", "baton-grpc", "baton-http", 1.1),
    Goal("256 to 64", "token", "baton-grpc", "baton-http", 1.1),
    Goal("8 to 64", "request", "baton-http", "dynamo", 0.9),
    Goal("256 to 64", "token", "baton-http", "dynamo", 0.65),
    Goal("256 to 64", "token", "baton-http", "smg", 1.6),
    Goal("16 to 1", "request", "baton-http", "dynamo", 1.2),
    Goal("burst of 64", "ttft", "baton-http", "dynamo", 1.2),
    Goal("16 to 1", "ttft", "baton-http", "dynamo", 1.0),
)


def print_goals(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Print every goal that the rows determine, from the median of the rounds; return them."""
    found = []
    for pace in dict.fromkeys(row["pace_ms"] for row in rows):
        heading = f"\na step each {pace:g} ms, as ratios: goals, and what was measured"
        for goal in GOALS:
            ours, theirs = (
                [
                    row
                    for row in rows
                    if (row["pace_ms"], row["system"], row["load"]) == (pace, system, goal.load)
                ]
                for system in (goal.system, goal.other)
            )
            if ours and theirs:
                if heading:
                    print(heading)
                    heading = ""
                found.append({"pace_ms": pace, **_compare(goal, ours, theirs)})
    return found


def _compare(goal: Goal, ours: Sequence[Row], theirs: Sequence[Row]) -> dict[str, Any]:
    name, figure = _FIGURES[goal.figure]
    ratio = _median(ours, figure) / _median(theirs, figure)
    steps = [_median(rows, lambda row: float(row["itl_ms"]["p50"])) for rows in (ours, theirs)]
    comparable = max(steps) <= PACE_TOLERANCE * min(steps)
    answered = not any(row["errors"] for row in (*ours, *theirs))
    verdict = "met" if ratio <= goal.limit else "MISSED"
    if not comparable:
        verdict += f"; NOT COMPARABLE: intervals of {steps[0]:.2f} and {steps[1]:.2f} ms"
    if not answered:
        verdict += "; there were errors"
    print(
        f"  {goal.load:12} {name:16} {goal.system:10} / {goal.other:10}"
        f" {ratio:5.2f}  goal {goal.limit:4.2f}  {verdict}",
        flush=True,
    )
    return {
        "load": goal.load,
        "figure": goal.figure,
        "system": goal.system,
        "other": goal.other,
        "limit": goal.limit,
        "ratio": ratio,
        "comparable": comparable,
        "met": ratio <= goal.limit,
    }


def _median(rows: Sequence[Row], figure: Callable[[Row], float]) -> float:
    return statistics.median(map(figure, rows))
