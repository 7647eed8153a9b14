"""The cluster of the overload benchmark, its tenants and their clients."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from baton.tenancy.records.tenants import Tier
from bench.harness.child import Helper, helper
from bench.harness.fleet import total
from bench.harness.machine import cpu_seconds
from bench.harness.stats import percentile
from bench.router.overload.load import Offer, Outcome, Source
from bench.tenancy.scene import Scene, scene

SERVICES = ("kvstore", "router", "decode", "frontend")
MEAN_TOKENS, OUTPUT_TOKENS = 200.0, 4
STEP_SECONDS = 0.064
"""Duration of a step with prompts only: the worker sees requests that arrive during it at its
end."""
WEIGHTS = {"one": 1, "two": 2, "four": 4}
"""Weights of tenants, in addition to `small` and `large`, which have weight one."""
CLIENTS = "clients"
"""Processes that use CPU and are not part of the cluster."""
DRAIN_SECONDS = 15.0
IDLE_SECONDS = 30.0


class Bench:
    """A cluster, its tenants and their clients."""

    def __init__(self, cluster: Scene, clients: Helper, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._clients = clients
        self._options = options
        self._secrets: dict[str, str] = {}

    async def add_tenants(self) -> None:
        """Create the tenants and their keys."""
        admin = self._cluster.admin
        for name, weight in {"small": 1, "large": 1, **WEIGHTS}.items():
            await admin.create_tenant(name, Tier.PRO, weight=weight)
            _, self._secrets[name] = await admin.create_key(
                await admin.find_project(name, "default")
            )
        await asyncio.sleep(1)  # until the frontend and the router know the keys

    def source(self, name: str, per_second: float, **more: Any) -> Source:
        return Source(name, self._secrets[name], per_second, **more)

    def of(self, seconds: float, *sources: Source) -> Offer:
        """Return the requests of some sources."""
        return Offer(
            self._cluster.grpc[0],
            self._cluster.model,
            sources,
            seconds,
            DRAIN_SECONDS,
            MEAN_TOKENS,
            OUTPUT_TOKENS,
        )

    async def offer(self, seconds: float, *sources: Source) -> "Offered":
        """Send an offer's requests to the idle cluster, and return once it is idle again."""
        offer = self.of(seconds, *sources)
        at_random = await self._at_random()
        began, before = time.monotonic(), self._cpu()
        answered = await self._clients.ask(offer.to_json())
        took = time.monotonic() - began
        cpu = {name: used - before[name] for name, used in self._cpu().items()}
        await self._wait_idle()
        at_random = await self._at_random() - at_random
        return Offered([Outcome(**one) for one in answered], seconds, cpu, took, at_random)

    async def set_gate(self, seconds: float) -> None:
        """Restart the router with another gate, and let it learn the workers' speed."""
        fleet = self._cluster.fleet
        await fleet.terminate("router-0")
        await fleet.start("router-0", settings={"BATON_QUEUE_GATE_SECONDS": str(seconds)})
        await fleet.wait_ready()
        await self.warm_up()

    async def warm_up(self) -> None:
        """Let the router learn the workers' speed, at half of their capacity."""
        await self.offer(self._options.warm_seconds, self.source("small", self._options.cap / 2))

    def _cpu(self) -> dict[str, float]:
        """Return the CPU seconds that each kind of process has used."""
        pids = {name: [one.pid for one in self._cluster.fleet.of(name)] for name in SERVICES}
        pids["etcd"], pids[CLIENTS] = [self._cluster.local.pid or 0], [self._clients.pid]
        return {
            name: sum(cpu_seconds(pid) for pid in some if pid)
            for name, some in pids.items()
            if any(some)
        }

    async def _at_random(self) -> float:
        (frontend,) = self._cluster.fleet.frontends
        return total(await frontend.metrics(), "baton_frontend_random_placements_total")

    async def _wait_idle(self) -> None:
        async with asyncio.timeout(IDLE_SECONDS):
            while await self._busy():
                await asyncio.sleep(0.2)

    async def _busy(self) -> float:
        members = self._cluster.fleet.of("router", "decode")
        busy = 0.0
        for metrics in await asyncio.gather(*(one.metrics() for one in members)):
            for name in ("baton_router_queue_length", "baton_router_tickets"):
                busy += total(metrics, name)
            busy += total(metrics, "vllm:num_requests_running")
        return busy


class Offered:
    """The results of an offer."""

    def __init__(
        self,
        outcomes: Sequence[Outcome],
        seconds: float,
        cpu: Mapping[str, float],
        took: float,
        at_random: float,
    ) -> None:
        self.outcomes = outcomes
        self.at_random = at_random
        """Requests that the frontend placed itself because the router did not respond in time."""
        self.seconds = seconds
        self.cores = sum(used for name, used in cpu.items() if name != CLIENTS) / took
        """Cores that the cluster used."""
        self.cpu_ms = {name: used / len(outcomes) * 1e3 for name, used in cpu.items()}
        """CPU of each kind of process per request, whether or not it is involved in requests."""
        known = {"", "OVERLOADED", "left"}
        self.errors = sorted({one.reason for one in outcomes} - known)

    @property
    def late_ms(self) -> float:
        return percentile([one.sent - one.due for one in self.outcomes], 99) * 1e3

    def of(self, source: str) -> list[Outcome]:
        return [one for one in self.outcomes if one.source == source]

    def ttft_ms(self, source: str) -> tuple[float, float]:
        """Return the median and the p99 of a source's times to first token."""
        found = [one.ttft for one in self.of(source)]
        return percentile(found, 50) * 1e3, percentile(found, 99) * 1e3


@asynccontextmanager
async def start(options: argparse.Namespace) -> AsyncIterator[Bench]:
    """Run the cluster and the clients until the block exits."""
    rate = options.cap * MEAN_TOKENS / options.workers
    counts = {"kvstore": 1, "router": 1, "prefill": 0, "decode": options.workers, "frontend": 1}
    settings = {
        "BATON_PLACEMENT_DISAGGREGATION": "never",
        "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": str(rate),
        "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.001",
        # The defaults: a store that is too small moves blocks constantly, and sends events of it.
        "BATON_STORE_ARENA_BYTES": "512MiB",
        "BATON_STORE_DISK_BYTES": "0",
        "BATON_ENGINE_CHUNK_TOKENS": str(round(rate * STEP_SECONDS)),
    }
    async with (
        scene(counts, settings) as cluster,
        helper("bench.router.overload.load") as clients,
    ):
        bench = Bench(cluster, clients, options)
        await bench.add_tenants()
        yield bench
