"""What class batch takes from interactive requests, on virtual time.

    python -m bench.router.idle_room

The load of `bench.serving.idle_room` on two combined workers: interactive requests alone, and next
to 64 and 256 lines of class batch at once; then a burst of interactive requests while lines have
everything. The engine's scheduler and the router's queue and placement are the product's; steps and
messages take time on a clock that jumps from event to event, so that the figures depend neither on
this machine nor on its other load. KV stores, frontends and processes are left out.

"of left": lines per second compared with what is left for them, which is lines per second without
interactive requests, less the share of the workers' time that the interactive requests' own tokens
take by the engine's costs.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.router.idle_room.cluster import BATCH, INTERACTIVE, Asked, VirtualCluster

WORKERS = 2
PROMPTS = (200, 1500)
OUTPUT = 48
SHARED, OWN, LINE_OUTPUT = 1024, 96, 64
BURST = 8
SETTLE_SECONDS = 5.0
END_SECONDS = 30.0
Row = dict[str, Any]


@dataclass
class Lines:
    """Lines of class batch, so many at once, until stopped."""

    cluster: VirtualCluster
    at_once: int
    ended: list[float] = field(default_factory=list)
    stopped: bool = False

    def start(self) -> None:
        shared = self.cluster.tokens(SHARED)

        def ask() -> None:
            prompt = (*shared, *self.cluster.tokens(OWN))
            self.cluster.ask(prompt, LINE_OUTPUT, BATCH, ended)

        def ended(line: Asked) -> None:
            self.ended.append(line.times[-1])
            if not self.stopped:
                ask()

        for _ in range(self.at_once):
            ask()


def started(places: int, options: argparse.Namespace, lines: int, seed: int) -> Lines:
    """Return a warm cluster, with lines that have run for a while."""
    cluster = VirtualCluster(WORKERS, places, options.scale, seed, options.itl_target)
    for _ in range(2 * WORKERS):
        cluster.ask(cluster.tokens(600), 8, INTERACTIVE, lambda _: None)
        cluster.clock.run(cluster.clock.now + 1.0)
    batch = Lines(cluster, lines)
    batch.start()
    cluster.clock.run(cluster.clock.now + SETTLE_SECONDS)
    return batch


def window(places: int, options: argparse.Namespace, rate: float, lines: int, seed: int) -> Row:
    """Measure one window of interactive requests next to lines; either may be none."""
    batch, draw = started(places, options, lines, seed), random.Random(seed)
    cluster, done = batch.cluster, list[Asked]()
    clock, begin, seconds = cluster.clock, batch.cluster.clock.now, options.seconds

    def ask(length: int) -> Callable[[], None]:
        return lambda: cluster.ask(cluster.tokens(length), OUTPUT, INTERACTIVE, done.append)

    for at in sorted(draw.random() for _ in range(round(rate * seconds))):
        clock.at(begin + at * seconds, ask(draw.randint(*PROMPTS)))
    clock.run(begin + seconds)
    ended = sum(at >= begin for at in batch.ended)
    batch.stopped = True
    clock.run(clock.now + END_SECONDS)
    firsts = [one.first for one in done]
    gaps = [b - a for one in done for a, b in pairwise(one.times)]
    return {
        "places": places,
        "rate": rate,
        "lines": lines,
        "seed": seed,
        "first_p50": percentile(firsts, 50),
        "first_p99": percentile(firsts, 99),
        "gap_p50": percentile(gaps, 50),
        "gap_p99": percentile(gaps, 99),
        "whole_p50": percentile([one.times[-1] - one.at for one in done], 50),
        "lines_per_second": ended / seconds,
    }


def burst(places: int, options: argparse.Namespace, lines: int, seed: int) -> float:
    """Return the first token of the first of a burst of equal requests, in seconds."""
    batch, done = started(places, options, lines, seed), list[Asked]()
    cluster = batch.cluster
    cluster.clock.run(cluster.clock.now + random.Random(seed).random())
    for _ in range(BURST):
        cluster.ask(cluster.tokens(sum(PROMPTS) // 2), OUTPUT, INTERACTIVE, done.append)
    batch.stopped = True
    cluster.clock.run(cluster.clock.now + END_SECONDS)
    return min(one.first for one in done)


def measure(options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    table = Table(
        ("places", "6d"),
        ("lines", "5d"),
        ("TTFT p50 ms", "6.0f"),
        ("p99", "6.0f"),
        ("interval p50 ms", "6.0f"),
        ("p99", "6.0f"),
        ("TTFT p99 ×", "6.2f"),
        ("interval p99 ×", "6.2f"),
        ("whole s", "6.2f"),
        ("lines/s", "6.1f"),
        ("alone", "6.1f"),
        ("of left", "6.2f"),
    )
    prompt, output = sum(PROMPTS) / 2 / 20_000, OUTPUT * 0.0001
    share = options.rate * options.scale * (prompt + output) / WORKERS
    names = ("first_p50", "first_p99", "gap_p50", "gap_p99", "whole_p50", "lines_per_second")
    seeds = range(1, options.rounds + 1)
    for places in options.places:
        base: list[float] = []
        for lines in (0, *options.lines):
            own = [window(places, options, options.rate, lines, seed) for seed in seeds]
            batch = [window(places, options, 0.0, lines, seed) for seed in seeds if lines]
            rows += own + batch
            values = [median(row[name] for row in own) for name in names]
            base = base or values
            alone = median(row["lines_per_second"] for row in batch) if lines else 0.0
            left = alone * (1 - share)
            ratios = [values[1] / base[1], values[3] / base[3]]
            said = values[5] / left if left else ""
            times = [value * 1e3 for value in values[:4]]
            table.row(places, lines, *times, *ratios, *values[4:], alone, said)
            cli.write(options, rows)
        most = max(options.lines)
        empty, full = (
            median(burst(places, options, lines, seed) for seed in range(1, options.bursts + 1))
            for lines in (0, most)
        )
        rows.append({"places": places, "lines": most, "empty": empty, "full": full})
        print(
            f"{places} places, burst of {BURST}: first token after {full * 1e3:.0f} ms next to "
            f"{most} lines, {empty * 1e3:.0f} ms without: {full / empty:.2f} times"
        )
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--places", nargs="+", type=int, default=[64, 16], help="max_running")
    parser.add_argument("--lines", nargs="+", type=int, default=[64, 256], help="lines at once")
    parser.add_argument("--rate", type=float, default=4.0, help="interactive requests per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of a window")
    parser.add_argument("--scale", type=float, default=4.0, help="engine.sim_time_scale")
    parser.add_argument("--bursts", type=int, default=9, help="bursts; the median is printed")
    parser.add_argument(
        "--itl-target", type=float, default=0.05, help="as placement.itl_target_seconds; 0: none"
    )


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        3,
        smallest="--rounds 1 --places 16 --lines 32 --seconds 2 --bursts 1",
    )
