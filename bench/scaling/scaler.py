"""Prometheus and HPAs of a fleet: scrape, evaluate the manifests' queries, scale workers."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.request import urlopen

import yaml

from baton.autoscaling.hpa import desired_replicas
from baton.process.background import start_background
from bench.harness import ROOT
from bench.harness.fleet import Fleet, Member, is_ready
from bench.harness.promql.evaluate import evaluate
from bench.harness.promql.series import SeriesStore

MANIFEST = ROOT / "k8s/components/autoscaling/scalers.yaml"
NAMESPACE = "baton"
PERIOD_SECONDS = 1.0
"""Of scrapes and of decisions."""
_SCRAPE_SECONDS = 5.0


@dataclass
class ScaledPool:
    """The workers of one role."""

    role: str
    names: list[str]
    query: str
    """Of the manifest, for this role."""
    target: float
    running: list[str] = field(default_factory=list)
    """Those that run or start, the oldest first."""
    stopping: set[str] = field(default_factory=set)
    replicas: list[tuple[float, int]] = field(default_factory=list)
    """When there were how many, at each change."""


class FleetScaler:
    """Keeps as many workers of each pool as its query says.

    Args:
        fleet: whose workers they are.
        most: workers of each pool; the fewest are 0.
    """

    def __init__(self, fleet: Fleet, most: int) -> None:
        self._fleet = fleet
        self._most = most
        self._series = SeriesStore()
        self.pools = [self._pool(one) for one in _scalers()]
        self.starts: list[tuple[float, float]] = []
        """When each worker was started, and after how many seconds it was ready."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Start one worker of each pool and wait until they are ready."""
        await asyncio.gather(*(self._start(pool, pool.names[0]) for pool in self.pools))

    async def run(self) -> NoReturn:
        """Scrape and decide until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.gather(*(self._scrape(one) for one in self._fleet.of("router")))
            for pool in self.pools:
                self._decide(pool)
            await asyncio.sleep(max(0.0, began + PERIOD_SECONDS - time.monotonic()))

    def slowest_start(self, begin: float, end: float) -> float:
        """Return the longest start-up of workers that were started within a time; 0: none was."""
        return max((seconds for at, seconds in self.starts if begin <= at < end), default=0.0)

    async def close(self) -> None:
        """Wait until no worker is being started or stopped."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _decide(self, pool: ScaledPool) -> None:
        found = evaluate(pool.query, self._series, time.monotonic())
        assert isinstance(found, dict)
        if len(found) != 1:  # KEDA keeps what is there
            return
        (value,) = found.values()
        replicas = len(pool.running)
        wanted = desired_replicas(value, pool.target, replicas, 0, self._most)
        free = [one for one in pool.names if one not in {*pool.running, *pool.stopping}]
        for name in free[: max(0, wanted - replicas)]:
            self._spawn(self._start(pool, name))
        for name in pool.running[wanted:]:
            self._spawn(self._stop(pool, name))

    async def _start(self, pool: ScaledPool, name: str) -> None:
        pool.running.append(name)
        pool.replicas.append((time.monotonic(), len(pool.running)))
        began = time.monotonic()
        await self._fleet.start(name)
        while name in pool.running:  # else it is stopped while it starts
            if await is_ready(self._fleet[name]):
                self.starts.append((began, time.monotonic() - began))
                return
            await asyncio.sleep(0.1)

    async def _stop(self, pool: ScaledPool, name: str) -> None:
        pool.running.remove(name)
        pool.replicas.append((time.monotonic(), len(pool.running)))
        pool.stopping.add(name)
        try:
            await self._fleet.terminate(name)
        finally:
            pool.stopping.remove(name)

    async def _scrape(self, router: Member) -> None:
        try:
            text = await asyncio.to_thread(_read, f"http://127.0.0.1:{router.ops_port}/metrics")
        except OSError:  # as Prometheus: no sample
            return
        self._series.scrape(text, time.monotonic(), namespace=NAMESPACE, pod=router.id)

    def _pool(self, scaler: Any) -> ScaledPool:
        role, (trigger,) = scaler["metadata"]["name"], scaler["spec"]["triggers"]
        names = [one.id for one in self._fleet.of(role)]
        metadata = trigger["metadata"]
        return ScaledPool(role, names, metadata["query"], float(metadata["threshold"]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = start_background(work, "scale")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _scalers() -> list[Any]:
    documents = yaml.safe_load_all(MANIFEST.read_text())
    return [one for one in documents if one["metadata"]["name"] in ("prefill", "decode")]


def _read(url: str) -> str:
    with urlopen(url, timeout=_SCRAPE_SECONDS) as answer:
        return str(answer.read().decode())
