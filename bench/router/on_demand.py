"""Models that take turns: swaps and waits, compared with another rule and the fewest possible.

Requests for 3 models at random times, the k-th model as often as 1 / k, with room for the workers
of one model and 5 s to start them. Simulated: production's turns (`baton up --on-demand 1`), and
Ollama's rule, which loads the oldest request's model at once, on the same requests. `fewest` is
what a schedule needs that knows all arrivals, and in which no request waits for longer than the
longest did with these turns; its requests take no time, and its models need not stay. Waits are
those for a model's workers.

    python -m bench.router.on_demand [--per-second 0.05 0.1 0.25 0.5 1] [--json FILE]
"""

import argparse
from typing import Any

from baton.on_demand.turns import TurnPhase
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from simulator.config import ClusterConfig
from simulator.on_demand.fewest import fewest_swaps
from simulator.on_demand.rules import ProductionTurns, SwapAtOnce, TurnRule
from simulator.on_demand.run import TurnsOutcome, TurnsRun
from simulator.on_demand.workload import ModelRequest, zipf_requests

OUTPUT_TOKENS = 60
"""About 2 s of a stream."""


def production(options: argparse.Namespace) -> TurnRule:
    """Return production's turns, the first model ready."""
    turns = ProductionTurns(1, options.min_stay)
    for number in range(options.models):
        turns.add(str(number), TurnPhase.AWAY if number else TurnPhase.READY, 0.0)
    return turns


def run(options: argparse.Namespace, rule: TurnRule, requests: list[ModelRequest]) -> TurnsOutcome:
    """Return what comes of requests under a rule."""
    config = ClusterConfig(workers=1)
    return TurnsRun(rule, requests, options.models, options.start_seconds, config).run()


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run each rate and seed under both rules."""
    table = Table(
        ("per second", "10.2f"),
        ("requests", "8d"),
        ("rule", "<8"),
        ("failed", "6d"),
        ("swaps", "5d"),
        ("fewest", "6d"),
        ("ratio", "5.2f"),
        ("p50 s", "7.1f"),
        ("p99 s", "7.1f"),
        ("longest s", "9.1f"),
    )
    rows: list[dict[str, Any]] = []
    for rate in options.per_second:
        requests = zipf_requests(options.models, rate, options.seconds, OUTPUT_TOKENS, options.seed)
        names = [str(number) for number in range(options.models)]
        rules = {"turns": production(options), "at once": SwapAtOnce(names, 1)}
        for name, rule in rules.items():
            outcome = run(options, rule, requests)
            longest = max(outcome.waits)
            if name == "turns":
                arrivals = [
                    [one.arrival for one in requests if one.model == model]
                    for model in range(options.models)
                ]
                fewest = fewest_swaps(arrivals, longest, options.start_seconds)
            waits = sorted(outcome.waits)
            row = {
                "rate": rate,
                "requests": len(requests),
                "rule": name,
                "failed": outcome.failed,
                "swaps": outcome.swaps,
                "fewest": fewest,
                "ratio": outcome.swaps / max(1, fewest),
                "p50": percentile(waits, 50),
                "p99": percentile(waits, 99),
                "longest": longest,
            }
            rows.append(row)
            table.row(*row.values())
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the workload."""
    parser.add_argument("--per-second", nargs="+", type=float, default=[0.05, 0.1, 0.25, 0.5, 1.0])
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--start-seconds", type=float, default=5.0, help="whole seconds")
    parser.add_argument("--min-stay", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--per-second 0.5 --seconds 120")
