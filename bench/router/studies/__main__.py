"""Studies of who goes next, on simulated workers under the router's own queue and placement.

docs/simulation.md has what they print for the conversation trace of Mooncake.

    python -m bench.router.studies TRACE [--study fairness …] [--json FILE]
"""

import argparse
from pathlib import Path
from typing import Any

from bench.harness import cli
from bench.router.studies import fairness, overload, rows, shapes, steps, weights
from bench.router.studies.runs import CLUSTERS
from simulator.traces.trace import load

STUDIES = {
    "rows": rows,
    "fairness": fairness,
    "weights": weights,
    "overload": overload,
    "shapes": shapes,
    "steps": steps,
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the studies that are asked for."""
    trace = load(options.trace, limit=options.requests)
    found = {}
    clusters = {name: CLUSTERS[name] for name in options.cluster}
    for name in options.study:
        print(f"\n{name}", flush=True)
        found[name] = STUDIES[name].measure(trace, clusters)
        cli.write(options, found)
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the trace, and which studies to run."""
    parser.add_argument("trace", type=Path, help="one JSON object a line")
    parser.add_argument("--study", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--cluster", nargs="+", choices=CLUSTERS, default=list(CLUSTERS))
    parser.add_argument("--requests", type=int, help="the first so many; default: all")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="bench/router/smallest_trace.jsonl --study rows --cluster combined",
    )
