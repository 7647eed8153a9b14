"""How exactly real frontends share one limit: `python -m bench.limits.frontends`.

Starts etcd, two routers, four frontends and two workers with the simulated engine, and offers four
times what a tenant is allowed per minute: to all frontends evenly, to one, and to another one every
3 seconds; then evenly again while the router that owns the limit is killed halfway. Prints what was
admitted of the limit, the most in any 10 s of what limit and burst allow, what was admitted from
2 s after the kill on, and how long a refusal takes. The bucket is empty when each load begins.
"""

import argparse
import asyncio
import random
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.cluster.rendezvous import choose
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.rpc.channels import open_channel
from baton.telemetry import logs
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.spec import LimitId, Measure, Subject
from baton.tenancy.records.tenants import Tier
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.faults.setup import MODEL, cluster_settings
from bench.harness import cli
from bench.harness.fleet import Fleet, add_counts
from bench.harness.stats import percentile
from bench.harness.table import Table

CLUSTER, TENANT = "local", "acme"
COUNTS = {"kvstore": 1, "router": 2, "prefill": 1, "decode": 1, "frontend": 4}
LIMIT = LimitId(Subject.TENANT, TENANT, Measure.REQUESTS)
OVERLOAD = 4
HOP_SECONDS = 3.0
WINDOW_SECONDS = 10.0
RECOVER_SECONDS = 2.0
REFUSED = grpc.StatusCode.RESOURCE_EXHAUSTED


@dataclass
class Seen:
    """What clients saw of one load; times in seconds from its beginning."""

    admitted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    """How long each refusal took."""
    others: dict[str, int] = field(default_factory=dict)
    """Other ends, by gRPC code."""


@dataclass(frozen=True)
class Outcome:
    """As `bench.limits.shared` has it, and how long a refusal took."""

    load: str
    share: float
    window: float
    recovered: float | None
    refusal_p50_ms: float
    refusal_p99_ms: float
    others: dict[str, int]


class Clients:
    """Asks frontends for one token each time, with one key."""

    def __init__(self, addresses: Sequence[str], secret: str) -> None:
        self.channels = [open_channel(address) for address in addresses]
        self._stubs: list[Any] = [InferenceServiceStub(one) for one in self.channels]
        self._metadata = (("authorization", f"Bearer {secret}"),)
        self._request = inference_pb2.ChatRequest(
            messages=[inference_pb2.ChatMessage(role="user", content="hi")]
        )
        self._request.context.model = MODEL.name
        self._request.sampling.max_tokens = 1

    async def ask(self, frontend: int) -> str:
        """Return how a request ended: `OK`, or its gRPC code."""
        call = self._stubs[frontend].Chat(self._request, metadata=self._metadata, timeout=30)
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    async def use_up(self) -> None:
        """Return once the limit is used up: every frontend refuses."""
        while set(await asyncio.gather(*map(self.ask, range(len(self._stubs))))) != {REFUSED.name}:
            pass

    async def offer(self, load: str, per_second: float, seconds: float) -> Seen:
        """Offer requests at random times, without waiting for their ends."""
        seen, began, draw = Seen(), time.monotonic(), random.Random(1)
        running: set[asyncio.Task[None]] = set()

        async def one(frontend: int) -> None:
            asked = time.monotonic()
            code = await self.ask(frontend)
            if code == "OK":
                seen.admitted.append(asked - began)
            elif code == REFUSED.name:
                seen.refused.append(time.monotonic() - asked)
            else:
                seen.others[code] = seen.others.get(code, 0) + 1

        due = 0.0
        while (due := due + draw.expovariate(per_second)) < seconds:
            await asyncio.sleep(due - (time.monotonic() - began))
            frontend = draw.randrange(len(self._stubs))
            if load == "one":
                frontend = 0
            elif load == "hopping":
                frontend = int(due / HOP_SECONDS) % len(self._stubs)
            task = asyncio.create_task(one(frontend))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
        seen.admitted.sort()
        return seen


async def owner(etcd: Etcd) -> str:
    """Return the instance id of the router that owns the limit."""
    pairs, _ = await etcd.list(*keys.members_range(CLUSTER))
    instances = [
        keys.decode(Instance, value)
        for key, value in pairs
        if key.startswith(keys.instances(CLUSTER))
    ]
    routers = {one.incarnation: one.id for one in instances if one.role == ROLE_ROUTER}
    return routers[choose(LIMIT.digest(), routers)]


def outcome(load: str, seen: Seen, options: argparse.Namespace, *, killed: bool) -> Outcome:
    limit, seconds, times = options.limit, options.seconds, seen.admitted
    most = max(bisect_left(times, at + WINDOW_SECONDS) - number for number, at in enumerate(times))
    later = seconds / 2 + RECOVER_SECONDS
    recovered = (len(times) - bisect_left(times, later)) / (limit * (seconds - later))
    return Outcome(
        f"{load}, killed" if killed else load,
        len(times) / (limit * seconds),
        most / (limit * (WINDOW_SECONDS + 60)),
        recovered if killed else None,
        percentile(seen.refused, 50) * 1e3,
        percentile(seen.refused, 99) * 1e3,
        seen.others,
    )


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    logs.configure("bench", "bench", "warning")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "etcd").mkdir()
        async with LocalEtcd(directory / "etcd") as local, Etcd(local.endpoints) as etcd:
            settings = {**cluster_settings("sim", "float64"), "BATON_AUTH_MODE": "keys"}
            fleet = Fleet(directory, local, settings, options.counts, {})
            try:
                await fleet.start(*fleet.members)
                await fleet.wait_ready()
                return await run(fleet, etcd, options)
            finally:
                await fleet.stop()


async def run(fleet: Fleet, etcd: Etcd, options: argparse.Namespace) -> list[dict[str, Any]]:
    admin = Administration(etcd, CLUSTER)
    await admin.create_tenant(TENANT, Tier.PRO, requests_per_minute=60 * options.limit)
    _, secret = await admin.create_key(await admin.find_project(TENANT, "default"))
    clients = Clients([f"127.0.0.1:{one.grpc_port}" for one in fleet.frontends], secret)
    await asyncio.sleep(1)  # until all frontends know the key
    table = Table(
        ("load", "<14"),
        ("admitted %", "10.1f"),
        ("10 s %", "7.1f"),
        ("after 2 s %", "11.1f"),
        ("refused p50 ms", "14.1f"),
        ("p99 ms", "7.1f"),
    )
    results = []
    for load, killed in (("even", False), ("one", False), ("hopping", False), ("even", True)):
        await clients.use_up()
        offering = asyncio.create_task(
            clients.offer(load, OVERLOAD * options.limit, options.seconds)
        )
        if killed:
            await asyncio.sleep(options.seconds / 2)
            fleet.kill(await owner(etcd))
        found = outcome(load, await offering, options, killed=killed)
        table.row(
            found.load,
            100 * found.share,
            100 * found.window,
            "-" if found.recovered is None else 100 * found.recovered,
            found.refusal_p50_ms,
            found.refusal_p99_ms,
        )
        if found.others:
            print(f"  other ends: {found.others}")
        results.append(asdict(found))
    for channel in clients.channels:
        await channel.close(None)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load; default: 30")
    parser.add_argument("--limit", type=int, default=25, help="per second; default: 25")
    add_counts(parser, COUNTS)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--seconds 1 --limit 5 --counts 1,2,1,1,2")
