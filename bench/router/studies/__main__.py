"""Studies of queue order, on simulated workers with the router's own queue and placement.

docs/simulation.md has their output for Mooncake's conversation trace.

    python -m bench.router.studies TRACE [--study fairness …] [--json FILE]
"""

import argparse
from pathlib import Path
from typing import Any

from bench.harness import cli
from bench.router.studies import fairness, overload, rows, scaling, shapes, steps, weights
from bench.router.studies.runs import CLUSTERS
from simulator.traces.trace import load

STUDIES = {
    "rows": rows,
    "fairness": fairness,
    "weights": weights,
    "overload": overload,
    "shapes": shapes,
    "steps": steps,
    "scaling": scaling,
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the selected studies."""
    trace = load(options.trace, limit=options.requests)
    found = {}
    clusters = {name: CLUSTERS[name] for name in options.cluster}
    for name in options.study:
        print(f"\n{name}", flush=True)
        found[name] = STUDIES[name].measure(trace, clusters)
        cli.write(options, found)
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the trace, and the selection of studies."""
    parser.add_argument("trace", type=Path, help="one JSON object per line")
    parser.add_argument("--study", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--cluster", nargs="+", choices=CLUSTERS, default=list(CLUSTERS))
    parser.add_argument(
        "--requests", type=int, help="number of requests from the start; default: all"
    )


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="bench/router/smallest_trace.jsonl --study rows --cluster combined",
    )
