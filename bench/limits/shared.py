"""How exactly 8 frontends enforce one shared limit, and messages per second.

    python -m bench.limits.shared [--seconds 60] [--limit 100] [--offered 400] [--json FILE]

Simulated, by seed; `chunks` runs the objects of production. Load goes to all frontends evenly, to
one, or to another one every 3 seconds. With `killed`, the router that owns the limit is killed
halfway, and `after 2 s` is the admitted share from 2 s later on. The limit's burst is a second's
amount. `10 s` is the highest admitted share in any 10 s of what limit and burst allow.
"""

import argparse
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from baton.tenancy.limits.spec import Subject
from bench.harness import cli
from bench.harness.table import Table
from bench.limits.schemes import FRONTENDS, ROUTERS, Burst, Central, Chunks, Scheme
from bench.limits.world import World

SCHEMES = ("chunks", "1/N each", "one counter")
LOADS = ("even", "one", "hopping")
HOP_SECONDS = 3.0
WINDOW_SECONDS = 10.0
RECOVER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    scheme: str
    load: str
    limit: int = 100
    """Per second, with the same amount as burst."""
    offered: float = 400.0
    """Requests per second."""
    seconds: float = 60.0
    kill: bool = False
    """Whether the owner is killed halfway."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run."""

    share: float
    """Admitted share of what the limit allows in the time, without its burst."""
    window: float
    """Highest admitted share in any 10 s of what limit and burst allow."""
    messages: float
    """Messages per second."""
    recovered: float
    """As `share`, from 2 s after the kill on."""


def run(case: Case) -> Outcome:
    """Simulate a case."""
    world = World(case.seed)
    subject = Burst(Subject.TENANT, "acme", requests_per_minute=60 * case.limit)
    (limit,) = subject.limits()
    scheme: Scheme
    if case.scheme == "one counter":
        scheme = Central(world, limit)
    else:
        scheme = Chunks(world, subject, ROUTERS if case.scheme == "chunks" else ())
    admitted: list[float] = []
    half = case.seconds / 2
    if case.kill and isinstance(scheme, Chunks):
        chunks = scheme
        world.at(half, lambda: chunks.kill(limit))

    def done(admit: bool) -> None:
        if admit:
            admitted.append(world.now)

    def arrive() -> None:
        scheme.arrive(_frontend(case, world), done)
        world.at(world.now + world.draw.expovariate(case.offered), arrive)

    world.at(0.0, arrive)
    world.run(case.seconds)
    most = max(
        bisect_left(admitted, at + WINDOW_SECONDS) - number for number, at in enumerate(admitted)
    )
    later = half + RECOVER_SECONDS
    return Outcome(
        share=len(admitted) / (case.limit * case.seconds),
        window=most / (limit.per_minute / 60 * WINDOW_SECONDS + limit.burst),
        messages=world.messages / case.seconds,
        recovered=(len(admitted) - bisect_left(admitted, later))
        / (case.limit * (case.seconds - later)),
    )


def _frontend(case: Case, world: World) -> int:
    if case.load == "one":
        return 0
    if case.load == "hopping":
        return int(world.now / HOP_SECONDS) % FRONTENDS
    return world.draw.randrange(FRONTENDS)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table(
        ("scheme", "<12"),
        ("load", "<14"),
        ("admitted %", "10.1f"),
        ("10 s %", "7.1f"),
        ("after 2 s %", "11.1f"),
        ("messages/s", "10.0f"),
    )
    results = []
    cases = [(scheme, load, False) for scheme in SCHEMES for load in LOADS]
    for scheme, load, kill in [*cases, *(("chunks", load, True) for load in LOADS)]:
        case = Case(
            scheme, load, options.limit, options.offered, options.seconds, kill, options.seed
        )
        outcome = run(case)
        table.row(
            scheme,
            f"{load}, killed" if kill else load,
            100 * outcome.share,
            100 * outcome.window,
            100 * outcome.recovered if kill else "-",
            outcome.messages,
        )
        results.append({"case": case, "outcome": outcome})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="default: 60")
    parser.add_argument("--limit", type=int, default=100, help="requests per second; default: 100")
    parser.add_argument(
        "--offered", type=float, default=400.0, help="requests per second; default: 400"
    )
    parser.add_argument("--seed", type=int, default=1, help="default: 1")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--seconds 2")
