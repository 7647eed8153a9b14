"""A real cluster under five times its workers' capacity: `python -m bench.router.overload`.

Starts etcd, a router, a KV store, a frontend that requires API keys, and 8 workers with the
simulated engine, whose total capacity is `--cap` requests per second. Another process sends
`--offered` requests per second at random times, whether or not earlier ones have ended. Prompt
lengths have a log-normal distribution (1 of 100 is 4.7 times as long as the mean of 200 tokens),
all prompts are new, and outputs have 4 tokens. Prints

- overload: the rejected requests, the time until their rejection, and the share of the others with
  a first token within a second;
- fairness: the time to first token of a tenant, alone and next to an equal one that sends 50 times
  as much, with gates of 0 and 0.1 s, and the ratio of their p99; `simulated` is that of the same
  requests on simulated workers, where CPU is not scarce;
- weights: tokens of tenants with weights 1, 2 and 4 that each offer a third, relative to their
  weights.

`sent late` is the p99 of the delay at the clients themselves. `cores` is the use of the cluster's
processes. `at random` is the number of requests that the frontend placed itself because it had not
received anything from the router for a second: the machine was then too busy for a statement about
queues. `CPU ms per request` is the CPU time of each kind of process in the first part, divided by
the number of offered requests; on a busy machine it is more reliable than times. The benchmark
takes six minutes; `--cap 20 --offered 100` needs less CPU.
"""

import argparse
from typing import Any

from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.router.overload.cluster import (
    MEAN_TOKENS,
    OUTPUT_TOKENS,
    WEIGHTS,
    Bench,
    start,
)
from bench.router.overload.simulated import ttfts

TARGET_SECONDS = 1.0
TIMES_MORE = 50
GATES = (0.0, 0.1)


async def overload(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Print and return the results of requests that want their first token within a second."""
    offered = await bench.offer(
        options.seconds, bench.source("large", options.offered, target=TARGET_SECONDS)
    )
    accepted = [one for one in offered.outcomes if not one.refused]
    refusals = [one.ended - one.sent for one in offered.outcomes if one.refused]
    ttfts = [one.ttft for one in accepted]
    found = {
        "offered": len(offered.outcomes) / options.seconds,
        "accepted": len(accepted) / options.seconds,
        "in_time": sum(one <= TARGET_SECONDS for one in ttfts) / max(1, len(ttfts)),
        "ttft_ms": [percentile(ttfts, q) * 1e3 for q in (50, 95, 99)],
        "refusal_ms": [percentile(refusals, q) * 1e3 for q in (50, 99)],
        "late_ms": offered.late_ms,
        "cores": offered.cores,
        "cpu_ms": offered.cpu_ms,
        "errors": offered.errors,
    }
    table = Table(
        ("overload: offered/s", "19.1f"),
        ("accepted/s", "10.1f"),
        ("in time %", "9.1f"),
        ("TTFT p50 ms", "11.0f"),
        ("p95", "5.0f"),
        ("p99", "5.0f"),
        ("refused p50 ms", "14.1f"),
        ("p99", "6.1f"),
        ("sent late ms", "12.1f"),
        ("cores", "5.2f"),
        ("at random", "9.0f"),
    )
    table.row(
        found["offered"],
        found["accepted"],
        100 * found["in_time"],
        *found["ttft_ms"],
        *found["refusal_ms"],
        offered.late_ms,
        offered.cores,
        offered.at_random,
    )
    columns = [(name, f"{len(name) + 1}.2f") for name in offered.cpu_ms]
    Table(("CPU ms per request", "<19"), *columns).row("", *offered.cpu_ms.values())
    return found


async def fairness(bench: Bench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print and return a tenant's times to first token, alone and next to the other, by gate."""
    table = Table(
        ("fairness: gate s", "16.1f"),
        ("requests", "8d"),
        ("alone p50 ms", "12.0f"),
        ("p99", "5.0f"),
        ("beside p50 ms", "13.0f"),
        ("p99", "5.0f"),
        ("p99 times", "9.2f"),
        ("simulated", "9.2f"),
        ("sent late ms", "12.1f"),
        ("cores", "5.2f"),
        ("at random", "9.0f"),
    )
    few = options.offered / (TIMES_MORE + 1)
    small = bench.source("small", few)
    large = bench.source("large", options.offered - few, waited_for=False)
    rows = []
    for gate in options.gates:
        await bench.set_gate(gate)
        alone = await bench.offer(options.fair_seconds, small)
        beside = await bench.offer(options.fair_seconds, small, large)
        before, after = alone.ttft_ms("small"), beside.ttft_ms("small")
        times = after[1] / before[1]
        rate = options.cap * MEAN_TOKENS / options.workers
        simulated = [
            percentile(
                ttfts(bench.of(options.fair_seconds, *some), "small", options.workers, rate, gate),
                99,
            )
            for some in ([small], [small, large])
        ]
        simulated_times = simulated[1] / simulated[0]
        count = len(beside.of("small"))
        table.row(
            gate,
            count,
            *before,
            *after,
            times,
            simulated_times,
            beside.late_ms,
            beside.cores,
            beside.at_random,
        )
        errors = [*alone.errors, *beside.errors]
        rows.append(
            {
                "gate": gate,
                "alone": before,
                "beside": after,
                "simulated": simulated,
                "errors": errors,
            }
        )
    return rows


async def weights(bench: Bench, options: argparse.Namespace) -> dict[str, float]:
    """Print and return the tokens of tenants, relative to their weights."""
    rate = options.offered / len(WEIGHTS)
    sources = [bench.source(name, rate, waited_for=False) for name in WEIGHTS]
    offered = await bench.offer(options.fill_seconds + options.seconds, *sources)
    tokens = {
        name: sum(
            one.prompt_tokens + OUTPUT_TOKENS
            for one in offered.of(name)
            if one.first is not None and options.fill_seconds <= one.first <= offered.seconds
        )
        for name in WEIGHTS
    }
    each = sum(tokens.values()) / sum(WEIGHTS.values())
    shares = {name: tokens[name] / (each * weight) for name, weight in WEIGHTS.items()}
    table = Table(
        *(
            (f"{'weights: ' if name == 'one' else ''}{weight}", "9.3f")
            for name, weight in WEIGHTS.items()
        ),
        ("tokens/s", "8.0f"),
        ("sent late ms", "12.1f"),
        ("cores", "5.2f"),
        ("at random", "9.0f"),
    )
    table.row(
        *shares.values(),
        sum(tokens.values()) / options.seconds,
        offered.late_ms,
        offered.cores,
        offered.at_random,
    )
    return shares


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    async with start(options) as bench:
        await bench.warm_up()
        parts = {"overload": overload, "fairness": fairness, "weights": weights}
        return {name: await parts[name](bench, options) for name in options.parts}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the load."""
    parts = ["overload", "fairness", "weights"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--cap", type=float, default=60.0, help="requests per second; default: 60")
    parser.add_argument(
        "--offered", type=float, default=300.0, help="requests per second; default: 300"
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="seconds of a load; default: 20"
    )
    parser.add_argument(
        "--fair-seconds", type=float, default=60.0, help="seconds of fairness; default: 60"
    )
    parser.add_argument("--warm-seconds", type=float, default=4.0, help="seconds of half the cap")
    help_ = "seconds of the weights' load until requests of all tenants wait; default: 5"
    parser.add_argument("--fill-seconds", type=float, default=5.0, help=help_)
    parser.add_argument("--gates", type=float, nargs="+", default=GATES, help="default: 0 and 0.1")
    parser.add_argument("--workers", type=int, default=8, help="default: 8")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--workers 2 --cap 20 --offered 100 --seconds 1 --fair-seconds 1 "
        "--warm-seconds 0.5 --fill-seconds 0.5 --gates 0.1",
    )
