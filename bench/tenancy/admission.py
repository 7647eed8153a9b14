"""Cost of a key, its limits and its usage record: `python -m bench.tenancy.admission`.

Two configurations of the same frontend code: `auth.mode` off and no spool; and 100,000 keys, nine
limits per request (requests and tokens per minute and concurrent requests, of key, project and
tenant), and a spool whose records go to JSONL files. Prints CPU of all threads per request, in
alternating rounds of both, and then the memory of the keys.

It then measures the wait of requests for which the frontend has no chunk of their limits. Each
request has a key that was not used before, so its three limits are requested from the router that
owns them, one of two routers in their own processes, over gRPC. Prints the time from the request's
header to its placement.
"""

import argparse
import asyncio
import gc
import os
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from baton.cluster.members.discovery import Discovery
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER
from baton.process.background import start_background
from baton.settings import FrontendPlacement, UsageSettings
from baton.tenancy.directory.directory import Directory
from baton.tenancy.records.tenants import Scope
from baton.usage.recording import recording
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.serving.authentication import (
    LIMITED,
    TOKENS,
    USED,
    Router,
    Uses,
    fields,
    records,
    resident_bytes,
)
from bench.tenancy.scene import CLUSTER, scene
from bench.tenancy.usage_records import end_all, progress_since, resolved_request
from services.frontend.access.authenticator import KeyAuthentication, NoAuthentication
from services.frontend.access.request_limits import RequestLimits
from services.frontend.generation.accounting.metering import Metering, RequestMeter
from services.frontend.placement.router_client import RouterClient
from services.frontend.requests.claims import Claims
from services.frontend.requests.record import RequestRecord

AT_ONCE = (1, 8, 64)
FETCHES_PER_SECOND = 100


class Frontend:
    """The steps of a request before placement, and at its end.

    Args:
        metering: records usage; None: usage is not recorded.
        authentication: identifies the caller.
        limits: limits of the caller; None: there are none.
    """

    def __init__(
        self,
        metering: Metering | None,
        authentication: NoAuthentication | KeyAuthentication,
        limits: RequestLimits | None,
    ) -> None:
        self._metering = metering
        self._authentication = authentication
        self._limits = limits
        self._asked = RequestRecord("http")
        self._asked.operation = "chat"
        self._request = resolved_request()
        self._progress = progress_since(time.monotonic())

    async def begin(self, header: Sequence[tuple[bytes, bytes]]) -> tuple[Any, RequestMeter | None]:
        """Do the steps before placement; return the arguments of `end`."""
        arrived = time.monotonic()
        asked, reservation, meter = self._asked, None, None
        credential = self._authentication.read(header)
        asked.principal = self._authentication.admit(credential)
        asked.principal.require(Scope.INFERENCE)
        if self._limits is not None:
            found = self._limits.of(asked.principal).counted
            if found is not None:
                reservation = await self._limits.reserve(found, TOKENS)
        if self._metering is not None:
            meter = self._metering.begin(self._request, asked, arrived)
        return reservation, meter

    async def end(self, begun: Sequence[tuple[Any, RequestMeter | None]]) -> None:
        """End requests; return once their clients may receive the end."""
        for reservation, _ in begun:
            if self._limits is not None and reservation is not None:
                self._limits.settle(reservation, USED)
        meters = [meter for _, meter in begun if meter is not None]
        if meters:
            await end_all(meters, self._progress)
        else:
            await asyncio.sleep(0)

    async def serve(self, headers: Sequence[Any], at_once: int) -> None:
        """Start a number of requests in each turn of the loop, while those of the last one end."""
        running: list[tuple[Any, RequestMeter | None]] = []
        for at in range(0, len(headers) + 1, at_once):
            begun = [await self.begin(one) for one in headers[at : at + at_once]]
            if running:
                await self.end(running)
            running = begun
        if running:
            await self.end(running)


async def cpu(
    secrets: list[bytes], authentication: KeyAuthentication, options: argparse.Namespace
) -> list[dict[str, Any]]:
    table = Table(
        ("at once", "7"),
        ("without us/request", "18.1f"),
        ("with us/request", "15.1f"),
        ("more", "6.1f"),
    )
    router: Any = Router()
    limits = RequestLimits(router, "frontend")
    limits.observe({"router"}, 1)
    headers = [fields(one) for one in random.sample(secrets, LIMITED)]
    found = []
    for at_once in AT_ONCE:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            settings = UsageSettings(
                spool_path=Path(directory) / "spool",
                jsonl_path=Path(directory) / "files",
                spool_bytes=1 << 30,
            )
            async with recording(settings) as spool:
                assert spool is not None
                plain = Frontend(None, NoAuthentication(), None)
                full = Frontend(
                    Metering(spool, lambda *_: False, "frontend-0"), authentication, limits
                )
                used = {plain: 0.0, full: 0.0}
                for one in (plain, full):
                    await one.serve(headers, at_once)  # warm, with chunks of all limits
                await asyncio.sleep(options.delivery)  # records of the warm-up
                for _ in range(options.rounds):
                    for one in (plain, full):
                        began = time.process_time()
                        for _ in range(options.requests // LIMITED):
                            await one.serve(headers, at_once)
                        if one is full:  # later deliveries belong to the next round
                            await asyncio.sleep(options.delivery)
                        used[one] += time.process_time() - began
        requests = options.rounds * (options.requests // LIMITED) * LIMITED
        without, with_ = (used[one] / requests * 1e6 for one in (plain, full))
        table.row(at_once, without, with_, with_ - without)
        found.append({"at_once": at_once, "without_us": without, "with_us": with_})
    return found


async def fetches(
    secrets: list[bytes], authentication: KeyAuthentication, options: argparse.Namespace
) -> dict[str, float]:
    """Return the durations in ms of requests that first fetch limits from their owners."""
    counts = {"kvstore": 1, "router": 2, "prefill": 0, "decode": 0, "frontend": 0}
    with tempfile.TemporaryDirectory() as directory:
        settings = UsageSettings(
            spool_path=Path(directory) / "spool", jsonl_path=Path(directory) / "files"
        )
        async with scene(counts) as up, AsyncExitStack() as stack:
            spool = await stack.enter_async_context(recording(settings))
            assert spool is not None
            discovery = await stack.enter_async_context(Discovery(up.etcd, CLUSTER))
            client = await stack.enter_async_context(
                RouterClient(
                    partial(discovery.by_role, ROLE_ROUTER),
                    discovery.report_unreachable,
                    Claims().supersede,
                    FrontendPlacement(),
                )
            )
            limits = RequestLimits(client, "bench")
            following = [
                start_background(limits.follow(discovery), "limits' owners"),
                start_background(limits.run_ticks(), "limits' ticks"),
            ]
            try:
                metering = Metering(spool, lambda *_: False, "frontend-0")
                frontend = Frontend(metering, authentication, limits)
                # Until new buckets fill, and the connections are open.
                await asyncio.sleep(2 * options.delivery)
                await frontend.end([await frontend.begin(fields(secrets[0]))])
                count = int(options.seconds * FETCHES_PER_SECOND)
                known = await paced(frontend, [secrets[0]] * count)
                fresh = await paced(frontend, secrets[1:count])
            finally:
                for task in following:
                    task.cancel()
                await asyncio.wait(following)
    table = Table(("chunks", "<12"), ("requests", "8"), ("ms p50", "8.2f"), ("p99", "8.2f"))
    found = {}
    for name, taken in (("here", known), ("to fetch", fresh)):
        p50, p99 = (percentile(taken, percent) * 1e3 for percent in (50, 99))
        table.row(name, len(taken), p50, p99)
        found[f"{name} p50"], found[f"{name} p99"] = p50, p99
    return found


async def paced(frontend: Frontend, secrets: Sequence[bytes]) -> list[float]:
    """Send requests with these keys at random times; return the time until placement of each."""
    taken: list[float] = []

    async def one(secret: bytes) -> None:
        began = time.perf_counter()
        begun = await frontend.begin(fields(secret))
        taken.append(time.perf_counter() - began)
        await frontend.end([begun])

    async with asyncio.TaskGroup() as asking:
        for secret in secrets:
            await asyncio.sleep(random.expovariate(FETCHES_PER_SECOND))
            asking.create_task(one(secret))
    return taken


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    print(f"load average {os.getloadavg()[0]:.1f}")
    stored, secrets = records(options.keys)
    gc.collect()
    before = resident_bytes()
    directory, uses = Directory(), Uses()
    for name, value in stored:
        directory.put(name, value)
    gc.collect()
    taken = (resident_bytes() - before) / 1e6
    print(f"{len(directory)} keys, with limits: {taken:.1f} MB")
    noting: Any = uses
    authentication = KeyAuthentication(directory, noting)
    random.shuffle(secrets)
    return {
        "megabytes": taken,
        "cpu": await cpu(secrets, authentication, options),
        "fetches": await fetches(secrets, authentication, options),
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=100_000, help="default: 100000")
    parser.add_argument(
        "--requests", type=int, default=10_000, help="requests per round; default: 10000"
    )
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="seconds of fetching; default: 15"
    )
    help_ = "seconds to deliver records and to fill new buckets; default: 1.5"
    parser.add_argument("--delivery", type=float, default=1.5, help=help_)
    parser.add_argument("--directory", type=Path, help="directory on the disk; default: temporary")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=5,
        smallest="--rounds 1 --keys 1000 --requests 1000 --seconds 0.5 --delivery 0.5",
    )
