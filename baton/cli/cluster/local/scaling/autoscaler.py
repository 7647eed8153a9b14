"""Starts and drains local workers as a HorizontalPodAutoscaler does with pods."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NoReturn, Protocol

from baton.autoscaling.hpa import desired_replicas
from baton.autoscaling.needed import NeededReplicas
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.cluster.local.output.running_requests import read_metrics
from baton.cli.cluster.local.scaling.bounds import PoolBounds
from baton.cli.cluster.local.spec import LocalPool
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.process.background import start_background

PERIOD_SECONDS = 2.0


class LocalWorkers(Protocol):
    """What starts and stops processes: a `Supervisor`."""

    def add(self, name: str) -> bool:
        """Start a process; False: it is still being stopped."""

    def remove(self, name: str) -> None:
        """Drain a process and stop it, in the background."""

    def is_wanted(self, name: str) -> bool:
        """Return whether a process runs or starts."""


class Autoscaler:
    """Keeps as many workers of each pool as the routers need, within bounds.

    Args:
        workers: starts and stops them.
        pools: the pools, of all models.
        bounds: of each pool.
        instances: returns the live instances.
        reporter: prints what changes.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        workers: LocalWorkers,
        pools: Sequence[LocalPool],
        bounds: PoolBounds,
        instances: Callable[[], Iterable[Instance]],
        reporter: Reporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._pools = pools
        self._bounds = bounds
        self._instances = instances
        self._reporter = reporter
        self._clock = clock
        self._needed = NeededReplicas()

    async def __aenter__(self) -> "Autoscaler":
        self._task = start_background(self.run(), "autoscaler")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def run(self) -> NoReturn:
        """Scale until cancelled."""
        while True:
            await self._scrape()
            self.scale()
            await asyncio.sleep(PERIOD_SECONDS)

    def take(self, router: str, exposition: str) -> None:
        """Take the metrics of a router."""
        self._needed.take(router, exposition, self._clock())

    def scale(self) -> None:
        """Start and drain workers; a pool without a number stays as it is."""
        least, most = self._bounds
        several = len({pool.model for pool in self._pools}) > 1
        for pool in self._pools:
            model, role, names = pool.model, pool.role, pool.ids
            needed = self._needed.needed(role, model, self._clock())
            if needed is None:
                continue
            running = [name for name in names if self._workers.is_wanted(name)]
            wanted = desired_replicas(needed, 1, len(running), least, most)
            if wanted > len(running):
                idle = (name for name in names if name not in running)
                added = (name for name in idle if self._workers.add(name))
                changed = list(islice(added, wanted - len(running)))
            else:
                changed = running[wanted:]
                for name in changed:
                    self._workers.remove(name)
            if changed:
                after = sum(self._workers.is_wanted(name) for name in names)
                of = f" of {model}" if several else ""
                self._reporter.info(
                    f"Scaling {role}{of} from {len(running)} to {after}: routers need {needed}."
                )

    async def _scrape(self) -> None:
        routers = [
            one for one in self._instances() if one.role == ROLE_ROUTER and one.metrics_address
        ]
        texts = await asyncio.gather(*(read_metrics(one.metrics_address) for one in routers))
        for router, text in zip(routers, texts, strict=True):
            self.take(router.id, text)
