"""Load on the pods of tests, through their Services; each answer is compared with an engine's."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.faults.setup import DTYPE, traffic
from bench.faults.traffic import Seen, Shape, Traffic
from bench.serving.rolling import LONG_OUTPUT_TOKENS
from tests.k8s.pods.cluster import Cluster

LEAST_PER_SECOND = 0.3
"""Requests that begin while load runs, also on a slow machine: 12 streams begin 3.8 on two cores, 6
streams half of that."""
LOOK_SECONDS = 0.5


class ServiceFrontends:
    """The frontends behind their Service."""

    def __init__(self, cluster: Cluster) -> None:
        self.grpc_target = cluster.address("frontend", 50051)
        self._http = cluster.address("frontend", 80).split(":")

    def http_address(self) -> tuple[str, int]:
        return self._http[0], int(self._http[1])

    async def watch(self) -> None:
        """Wait: it is the Service that watches."""
        await asyncio.Event().wait()


async def load_on(cluster: Cluster, streams: int) -> Traffic:
    """Return load of so many streams of each API; a third of them is longer than any drain."""
    shape = Shape(streams=streams, long_output_tokens=LONG_OUTPUT_TOKENS)
    load = traffic(ServiceFrontends(cluster), random.Random(1), "sim", DTYPE, shape)
    await load.learn(exact=True)
    return load


@asynccontextmanager
async def asking(load: Traffic, *, resume: bool) -> AsyncIterator[dict[str, Seen]]:
    """Keep asking in the block; what clients saw is the caller's to judge, after it.

    Args:
        load: what is asked.
        resume: whether gRPC clients ask again, and resume, where they are refused or cut off.
    """
    seen, stop = {"grpc": Seen(), "http": Seen()}, asyncio.Event()
    task = asyncio.create_task(load.run(stop, resume=resume, seen=seen))
    began = time.monotonic()
    try:
        yield seen
        seconds = time.monotonic() - began
    finally:
        stop.set()
        await task
        for name, one in seen.items():
            print(name, one.summary())
    assert begun(seen) >= LEAST_PER_SECOND * seconds, f"no load: {begun(seen)} in {seconds:.0f} s"


@asynccontextmanager
async def running(load: Traffic) -> AsyncIterator[dict[str, Seen]]:
    """Keep asking in the block, and nobody again; all are served at its end."""
    async with asking(load, resume=False) as seen:
        yield seen
    for one in seen.values():
        assert_served(one)


def assert_served(seen: Seen) -> None:
    """Check that each request was answered, and right."""
    wrong = (seen.failed, seen.cut, seen.unserved, seen.wrong)
    assert wrong == (0, 0, 0, 0), seen.summary()
    assert seen.ok >= seen.begun > 0, seen.summary()  # each choice of an answer counts over gRPC


def begun(seen: dict[str, Seen]) -> int:
    """Return how many requests there were."""
    return sum(one.begun for one in seen.values())


async def wait_begun(seen: dict[str, Seen], requests: int, seconds: float) -> None:
    """Wait until there were so many requests.

    Raises:
        TimeoutError: there were not in time.
    """
    async with asyncio.timeout(seconds):
        while begun(seen) < requests:
            await asyncio.sleep(LOOK_SECONDS)
