"""Load on the pods of tests, through their Services; each answer is compared with an engine's."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.faults.setup import EXACT, traffic
from bench.faults.traffic import Seen, Shape, Traffic
from bench.serving.rolling import LONG_OUTPUT_TOKENS
from tests.k8s.pods.cluster import Cluster


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
    load = traffic(ServiceFrontends(cluster), random.Random(1), "sim", EXACT, shape)
    await load.learn(exact=True)
    return load


@asynccontextmanager
async def running(load: Traffic) -> AsyncIterator[dict[str, Seen]]:
    """Keep asking in the block; nobody may have seen anything at its end."""
    seen, stop = {"grpc": Seen(), "http": Seen()}, asyncio.Event()
    asking = asyncio.create_task(load.run(stop, resume=False, seen=seen))
    try:
        yield seen
    finally:
        stop.set()
        await asking
        for name, one in seen.items():
            print(name, one.summary())
    for one in seen.values():
        assert (one.failed, one.cut, one.unserved, one.wrong) == (0, 0, 0, 0), one.summary()
        assert one.ok > 0


def begun(seen: dict[str, Seen]) -> int:
    """Return how many requests there were."""
    return sum(one.begun for one in seen.values())
