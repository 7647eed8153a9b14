"""Replacement of every process of a cluster under load: `python -m bench.serving.rolling`.

Starts etcd and two of each process, and keeps requests running over HTTP and gRPC without retries.
One process after the other gets SIGTERM and a successor, until a number of requests have ended. A
third of the streams last longer than the drain of any process except that of their frontend, which
a stream cannot outlive. gRPC clients know both frontends' addresses; HTTP clients open new
connections to ready ones, as with a Service of Kubernetes. Each output is compared with that of an
undisturbed engine.

`--versions released,checkout,released` upgrades all of them and rolls back: successors have the
next version of the list. `released` is the version from which upgrades are tested. Its frontends
reject requests while they stop, which counts as failed. `later` is the checkout with another layout
of KV and an additional field in every message.
"""

import argparse
import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baton.cluster.etcd.local import LocalEtcd
from bench.faults.frontends import FleetFrontends
from bench.faults.rows import ENGINES
from bench.faults.setup import COUNTS, DTYPE, cluster_settings, traffic
from bench.faults.traffic import Seen, Shape, Traffic
from bench.harness import cli
from bench.harness.fleet import SERVICES, Fleet, add_counts, total
from bench.harness.releases import CHECKOUT, Release
from bench.harness.releases.later import later
from bench.harness.releases.released import released
from bench.harness.table import Table

LONG_OUTPUT_TOKENS = (250, 350)
"""5 to 7 s by default."""
SETTINGS = {
    "BATON_STORE_ARENA_BYTES": "64MiB",
    "BATON_STORE_DRAIN_QUIET_SECONDS": "1",
}
FRONTEND_SETTINGS = {"BATON_DRAIN_SECONDS": "60", "BATON_LIMITS_DRAIN_NOTICE_SECONDS": "3"}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    draw = random.Random(options.seed)
    shape = Shape(streams=options.streams, long_output_tokens=LONG_OUTPUT_TOKENS)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "etcd").mkdir()
        async with LocalEtcd(directory / "etcd") as etcd:
            settings = {
                **cluster_settings(options.engine, DTYPE),
                **SETTINGS,
                "BATON_DRAIN_SECONDS": str(options.drain),
                "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": str(options.step),
            }
            fleet = Fleet(directory, etcd, settings, options.counts, {})
            for frontend in fleet.frontends:
                frontend.settings.update(FRONTEND_SETTINGS)
            versions = [version_of(name, directory) for name in options.versions.split(",")]
            try:
                await fleet.start(*fleet.members, release=versions[0])
                await fleet.wait_ready()
                load = traffic(FleetFrontends(fleet, draw), draw, options.engine, DTYPE, shape)
                await load.learn(exact=True)
                roles = options.roles.split(",")
                return await roll(fleet, load, roles, options, versions)
            finally:
                await fleet.stop()


async def roll(
    fleet: Fleet,
    load: Traffic,
    roles: Sequence[str],
    options: argparse.Namespace,
    versions: Sequence[Release],
) -> dict[str, Any]:
    """Replace all processes of these roles repeatedly, until `--requests` were started.

    Each successor has the next of the versions; the first one is running. All have their turn.
    """
    table = Table(
        ("restarted", "<12"),
        ("as", "<10"),
        ("gone after s", "12.2f"),
        ("ready after s", "13.2f"),
        ("handed over", "11"),
        ("requests", "8"),
        ("failed", "6"),
    )
    stop, rows = asyncio.Event(), []
    seen = {"grpc": Seen(), "http": Seen()}
    running = asyncio.create_task(load.run(stop, resume=False, seen=seen))
    began = time.monotonic()
    try:
        for number in itertools.count(1):
            version = versions[number % len(versions)]
            for member in fleet.of(*roles):
                before = await moved(fleet)
                gone = await fleet.terminate(member.id)
                handed_over = await moved(fleet) - before
                await fleet.start(member.id, release=version)
                ready = await fleet.wait_ready(member.id)
                failed = sum(one.failed + one.cut + one.unserved for one in seen.values())
                answered = sum(one.begun for one in seen.values())
                moved_now, name = max(0, int(handed_over)), version.name
                table.row(member.id, name, gone, ready, moved_now, answered, failed)
                times = {"gone_seconds": gone, "ready_seconds": ready}
                rows.append({"id": member.id, "version": name, **times})
                await asyncio.sleep(options.pause)
            begun = sum(one.begun for one in seen.values())
            if number >= len(versions) - 1 and begun >= options.requests:
                break
    finally:
        stop.set()
        await running
    surfaces = {name: one.summary() for name, one in seen.items()}
    for name, one in surfaces.items():
        print(name, one)
    return {"seconds": time.monotonic() - began, "rows": rows, **surfaces}


def version_of(name: str, directory: Path) -> Release:
    """Return the version with a name of `--versions`.

    Raises:
        SystemExit: there is no such version.
        HistoryError: the history lacks the released one.
    """
    match name:
        case "checkout":
            return CHECKOUT
        case "released":
            return released()
        case "later":
            path = directory / "later"
            return Release("later", (path,)) if path.exists() else later(path)
        case _:
            raise SystemExit(f"no version is called {name}: checkout, released or later")


async def moved(fleet: Fleet) -> float:
    """Return the number of streams that workers handed over, as counted by the live frontends."""
    shown = await asyncio.gather(*(one.metrics() for one in fleet.frontends if one.pid))
    return sum(total(one, "baton_frontend_streams_handed_over_total") for one in shown)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=ENGINES, default="sim")
    parser.add_argument("--requests", type=int, default=2000, help="minimum number of requests")
    parser.add_argument("--roles", default=",".join(SERVICES), help="roles to replace")
    parser.add_argument("--versions", default="checkout", help="versions in order")
    parser.add_argument("--streams", type=int, default=8, help="concurrent streams of each API")
    parser.add_argument("--drain", type=float, default=4.0, help="drain in seconds; frontends: 60")
    parser.add_argument("--step", type=float, default=0.02, help="seconds per decode step")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two processes")
    add_counts(parser, COUNTS)
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--requests 4 --roles decode --counts 1,1,1,2,1 --streams 2 --pause 0 "
        "--drain 1 --step 0.005",
    )
