"""Outcomes as JSON and as curves."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from simulator.policies.catalog import POLICIES
from simulator.report.plot import Panel, draw
from simulator.request import Request
from simulator.run import RunOutcome, Targets
from simulator.scaling.run import ScalingOutcome

_LOAD = "multiple of the recorded rate"


def write_json(
    path: Path, setup: Mapping[str, Any], found: Sequence[RunOutcome], runs: Sequence[RunOutcome]
) -> None:
    """Write the setup and the results.

    Args:
        path: path of the file.
        setup: the options, fit for JSON.
        found: results shown in the table.
        runs: all runs, including those of searches.
    """
    document = {
        "setup": setup,
        "results": [_fields(outcome) for outcome in found],
        "runs": [_fields(outcome) for outcome in runs],
    }
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_scaling_json(
    path: Path, setup: Mapping[str, Any], outcomes: Sequence[ScalingOutcome]
) -> None:
    """Write the setup and the results of runs on pools that scale."""
    document = {"setup": setup, "results": [_fields(outcome) for outcome in outcomes]}
    path.write_text(json.dumps(document, indent=1, allow_nan=False, default=str) + "\n")


def write_requests(file: TextIO, outcome: RunOutcome, requests: Iterable[Request]) -> None:
    """Write each request of a run as a line of JSON; times are in seconds, simulated."""
    for one in requests:
        line = {
            "policy": outcome.policy,
            "multiple": outcome.multiple,
            "request": one.number,
            "tenant": one.tenant,
            "arrival": one.arrival,
            "prompt_tokens": one.prompt_tokens,
            "output_tokens": one.output_tokens,
            "worker": one.worker,
            "cached_blocks": one.cached_blocks,
            "ttft": one.ttft if math.isfinite(one.ttft) else None,
        }
        file.write(json.dumps(line, allow_nan=False) + "\n")


def write_plot(path: Path, runs: Sequence[RunOutcome], targets: Targets) -> None:
    """Draw times to first token over the load, as SVG; complete runs only."""
    path.write_text(
        draw(
            [
                Panel(
                    "TTFT p90, s",
                    "multiple of the recorded rate",
                    _curves(runs, "p90"),
                    targets.p90,
                ),
                Panel(
                    "TTFT p99, s",
                    "multiple of the recorded rate",
                    _curves(runs, "p99"),
                    targets.p99,
                ),
            ]
        )
    )


def _curves(runs: Sequence[RunOutcome], percentile: str) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        value = getattr(run, percentile)
        if run.complete and math.isfinite(value):
            curves.setdefault(POLICIES[run.policy].title, []).append((run.multiple, value))
    return curves


def _fields(outcome: RunOutcome | ScalingOutcome) -> dict[str, Any]:
    """Return an outcome's fields; a missing time is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(outcome).items()
    }
