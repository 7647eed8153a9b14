"""Pools that follow the manifests' queries: `python -m bench.scaling`.

Starts etcd, a router, a KV store, a frontend, and a prefill and a decode worker with the simulated
engine; then up to `--most` of each, as the queries of k8s/components/autoscaling, evaluated each
second on series scraped from the router, and the formula of an HPA say. The load is `--phases`: a
factor of `--rate` and seconds, one after the other. Prints

- for each rise, the time until the p90 of the time to first token is within the target and stays
  there, next to the slowest start of a worker;
- failed requests; reversals, which are changes of a pool's direction within a phase; processes of
  workers at the end of a phase without load;
- the time to first token of the first request after it, less the slowest start of a worker.

The default takes 20 minutes.
"""

import argparse
import asyncio
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from baton.client import AsyncClient
from baton.cluster.etcd.local import LocalEtcd
from bench.faults.setup import MODEL
from bench.harness import cli
from bench.harness.fleet import Fleet
from bench.harness.table import Table
from bench.scaling.load import OpenLoad, SentRequest, recovered_after
from bench.scaling.scaler import FleetScaler, ScaledPool

TARGET_SECONDS = 2.0
TOKENS_PER_SECOND = 1_000.0
"""Prompt tokens that a prefill worker computes."""
WINDOW_SECONDS = 10.0
Phase = tuple[float, float]
"""Factor of the rate, and seconds."""


def phases_of(text: str) -> list[Phase]:
    """Return phases from `factor:seconds,…`."""
    pairs = (one.split(":") for one in text.split(","))
    return [(float(factor), float(seconds)) for factor, seconds in pairs]


def settings_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables of all processes."""
    return {
        "BATON_PLACEMENT_DISAGGREGATION": "always",
        "BATON_ENGINE_MODEL": str(MODEL),
        "BATON_ENGINE_MODEL_NAME": MODEL.name,
        "BATON_ENGINE_KIND": "sim",
        "BATON_ENGINE_THREADS": "1",
        "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": f"{TOKENS_PER_SECOND:g}",
        "BATON_STORE_ARENA_BYTES": "16MiB",
        "BATON_STORE_DISK_BYTES": "0",
        "BATON_SCALING_TTFT_TARGET_SECONDS": f"{TARGET_SECONDS:g}",
        "BATON_SCALING_HOLD_SECONDS": f"{options.hold:g}",
        "BATON_SCALING_IDLE_SECONDS": f"{options.idle:g}",
        "BATON_SCALING_ARRIVAL_SECONDS": f"{options.arrival:g}",
        "BATON_SCALING_MAX_REPLICAS": str(options.most),
        "BATON_CLUSTER_MODEL_KEEP_SECONDS": "3600",
        "BATON_LIMITS_DRAIN_NOTICE_SECONDS": "0",
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the phases, print and return the results."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "etcd").mkdir()
        counts = {"kvstore": 1, "router": 1, "frontend": 1}
        counts |= {"prefill": options.most, "decode": options.most}
        async with LocalEtcd(directory / "etcd", durable=False) as etcd:
            fleet = Fleet(directory, etcd, settings_of(options), counts, {})
            scaler = FleetScaler(fleet, options.most)
            try:
                await fleet.start("kvstore-0", "router-0", "frontend-0")
                await scaler.begin()
                await fleet.wait_ready("kvstore-0", "router-0", "frontend-0")
                return await _run(options, fleet, scaler)
            finally:
                await fleet.stop()


async def _run(options: argparse.Namespace, fleet: Fleet, scaler: FleetScaler) -> dict[str, Any]:
    address = f"127.0.0.1:{fleet.frontends[0].grpc_port}"
    async with AsyncClient(address) as client:
        load = OpenLoad(client, MODEL.name, random.Random(options.seed))
        scaling = asyncio.create_task(scaler.run())
        begins: list[float] = []
        at_zero: list[int] = []
        first: list[SentRequest] = []
        try:
            for factor, seconds in options.phases:
                begins.append(time.monotonic())
                if factor and len(begins) > 1 and not options.phases[len(begins) - 2][0]:
                    first.append(load.send())
                await load.run(factor * options.rate, seconds)
                if not factor:
                    workers = fleet.of("prefill", "decode")
                    at_zero.append(sum(bool(one.pid) for one in workers))
            begins.append(time.monotonic())
            await load.ended()
        finally:
            scaling.cancel()
            await asyncio.wait([scaling])
        await scaler.close()
    return _results(options, scaler, load.sent, begins, at_zero, first)


def _results(
    options: argparse.Namespace,
    scaler: FleetScaler,
    sent: list[SentRequest],
    begins: list[float],
    at_zero: list[int],
    first: list[SentRequest],
) -> dict[str, Any]:
    rises = []
    table = Table(("load", "<14"), ("requests", "8d"), ("p90 in target after s", "21.1f"),
                  ("start-up s", "10.1f"), ("prefill", "<12"), ("decode", "<12"))  # fmt: skip
    before = 0.0
    for (factor, seconds), (begin, end) in zip(options.phases, pairwise(begins), strict=True):
        own = [one for one in sent if begin <= one.at < end]
        recovered = recovered_after(own, TARGET_SECONDS, WINDOW_SECONDS) if own else 0.0
        if factor > before:
            rises.append(recovered)
        pools = [_said(pool, begin, end) for pool in scaler.pools]
        start = scaler.slowest_start(begin, end)
        table.row(f"x{factor:g}, {seconds:g} s", len(own), recovered, start, *pools)
        before = factor
    failed = [one.error for one in sent if one.ttft is None]
    reversals = sum(_reversals(pool, begins) for pool in scaler.pools)
    late = [
        one.ttft - scaler.slowest_start(one.at, one.at + one.ttft)
        for one in first
        if one.ttft is not None
    ]
    found = {
        "requests": len(sent),
        "failed": failed,
        "reversals": reversals,
        "workers_at_zero": at_zero,
        "first_after_zero_less_start": late,
        "recovered_seconds": rises,
        "start_seconds": [seconds for _, seconds in scaler.starts],
    }
    print(
        f"{len(sent)} requests, {len(failed)} failed, {reversals} reversals; workers at zero: "
        f"{at_zero}; first request after zero: "
        f"{', '.join(f'start-up + {one:.1f} s' for one in late)}"
    )
    for error in sorted(set(failed)):
        print(f"failed: {error}")
    return found


def _said(pool: ScaledPool, begin: float, end: float) -> str:
    """Return the numbers of replicas within a phase, from the one at its begin."""
    earlier = [count for at, count in pool.replicas if at < begin]
    return "-".join(map(str, [*earlier[-1:], *(n for at, n in pool.replicas if begin <= at < end)]))


def _reversals(pool: ScaledPool, begins: list[float]) -> int:
    """Return how often a pool changed its direction within a phase."""
    total = 0
    for begin, end in pairwise(begins):
        earlier = [count for at, count in pool.replicas if at < begin][-1:]
        counts = [*earlier, *(count for at, count in pool.replicas if begin <= at < end)]
        ups = [after > before for before, after in pairwise(counts)]
        total += sum(one != other for one, other in pairwise(ups))
    return total


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own arguments."""
    parser.add_argument("--phases", type=phases_of, default="1:180,6:300,1:300,0:180,1:240")
    parser.add_argument("--rate", type=float, default=1.2, help="requests per second of factor 1")
    parser.add_argument("--most", type=int, default=6, help="most workers of each pool")
    parser.add_argument("--hold", type=float, default=60, help="scaling.hold_seconds")
    parser.add_argument("--idle", type=float, default=30, help="scaling.idle_seconds")
    parser.add_argument("--arrival", type=float, default=30, help="scaling.arrival_seconds")
    parser.add_argument("--seed", type=int, default=1)


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--phases 1:5,3:8,0:20,1:5 --most 2 --hold 3 --idle 3 --arrival 5",
    )
