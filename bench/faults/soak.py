"""A long mixed load with clients that disconnect: `python -m bench.faults.soak --minutes 30`.

The cluster of `python -m bench.faults` without faults: requests over gRPC and HTTP, with each
output checked, and streams that are dropped at random moments. Memory and open files of every
process are sampled; neither may grow after the warm-up. At the end nothing may be held.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.faults.cancels import drop_streams
from bench.faults.frontends import FleetFrontends
from bench.faults.rows import ENGINES
from bench.faults.scene import RELEASE_SECONDS, Scene, scene
from bench.faults.setup import COUNTS, DTYPE, cluster_settings, traffic
from bench.harness import cli
from bench.harness.fleet import add_counts
from bench.harness.machine import rss_bytes
from bench.harness.table import Table

WARM_UP_SHARE = 0.3
"""Share of the samples in which caches and tiers fill."""
MOST_MIB_PER_MINUTE = 0.2
AT_ONCE = 12
TIERS = {
    "BATON_ENGINE_KV_BYTES": "512KiB",
    "BATON_STORE_ARENA_BYTES": "1MiB",
    "BATON_STORE_DISK_BYTES": "2MiB",
}
"""Small, so that all of it is in use before the warm-up ends: a block of 256 bytes costs a worker
about as much again in tables, and each router some 250. With 4 MiB of pages, four workers hold
65,536 blocks, and the routers' index grows for 10 minutes and more; with 512 KiB there are
8,192."""
SETTLED_MINUTES = 15
"""Until then a process still has its initial state, and growth is not significant."""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    draw = random.Random(options.seed)
    settings = cluster_settings(options.engine, DTYPE) | TIERS
    samples: dict[str, list[tuple[float, int, int]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with scene(Path(directory), settings, options.counts, draw) as made:
            load = traffic(FleetFrontends(made.fleet, made.draw), made.draw, options.engine, DTYPE)
            await load.learn(exact=True)
            stop = asyncio.Event()
            running = asyncio.create_task(load.run(stop, resume=False))
            sampling = asyncio.create_task(_sample(made, samples, options.sample))
            seconds = options.minutes * 60
            pause = max(0.0, seconds * AT_ONCE / max(1, options.cancels) - 0.2)
            began = time.monotonic()
            left = await drop_streams(made, options.cancels, at_once=AT_ONCE, pause_seconds=pause)
            await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))
            stop.set()
            seen = await running
            sampling.cancel()
            _, held = await made.at_baseline(RELEASE_SECONDS)
    table = Table(
        ("process", "<12"), ("MiB", "8.1f"), ("MiB/min", "8.2f"), ("files", "6"), ("", "<6")
    )
    grown = []
    processes = {}
    for name, points in samples.items():
        steady = points[int(len(points) * WARM_UP_SHARE) :]
        slope = _slope([(at / 60, rss / 2**20) for at, rss, _ in steady])
        files = [count for _, _, count in steady]
        more = statistics.median(files[-5:]) - statistics.median(files[:5])
        bad = slope > MOST_MIB_PER_MINUTE or more > 5
        grown += [name] if bad and options.minutes >= SETTLED_MINUTES else []
        mib = steady[-1][1] / 2**20
        table.row(name, mib, slope, int(files[-1]), "grows" if bad else "")
        processes[name] = {
            "mib": round(mib, 1),
            "mib_per_minute": round(slope, 3),
            "files": files[-1],
            "more_files": more,
            "mib_each_minute": _each_minute(points),
        }
    result = {
        **{
            api: {
                "ok": one.ok,
                "failed": one.failed,
                "wrong": one.wrong,
                "errors": dict(one.errors),
            }
            for api, one in seen.items()
        },
        "left": left,
        "held": held,
        "grown": grown,
        "processes": processes,
    }
    cli.write(options, result)
    print(json.dumps({key: value for key, value in result.items() if key != "processes"}))
    if held or grown or any(one.failed or one.wrong for one in seen.values()):
        raise SystemExit("it does not hold")
    return result


async def _sample(
    made: Scene, samples: dict[str, list[tuple[float, int, int]]], pause: float
) -> None:
    """Record seconds, resident bytes and open files of each process, periodically."""
    began = time.monotonic()
    while True:
        for member in made.fleet.of():
            files = len(list(Path(f"/proc/{member.pid}/fd").iterdir()))  # noqa: ASYNC240
            point = (time.monotonic() - began, rss_bytes(member.pid), files)
            samples.setdefault(member.id, []).append(point)
        await asyncio.sleep(pause)


def _each_minute(points: Sequence[tuple[float, int, int]]) -> list[float]:
    """Return the median resident MiB of each minute."""
    minutes: dict[int, list[int]] = {}
    for at, rss, _ in points:
        minutes.setdefault(int(at // 60), []).append(rss)
    return [round(statistics.median(one) / 2**20, 1) for one in minutes.values()]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES, default="sim")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--cancels", type=int, default=10_000)
    parser.add_argument("--sample", type=float, default=5.0, help="seconds between samples")
    add_counts(parser, COUNTS)


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--minutes 0.04 --cancels 12 --sample 0.4 --counts 1,1,1,1,1",
    )
