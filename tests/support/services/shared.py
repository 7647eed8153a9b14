"""Clusters shared by tests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.processes.launcher import Launcher
from tests.support.services.cluster import LocalCluster, Shape


class SharedClusters:
    """Clusters that tests share by shape: at most `limit`, the least recently used stops first."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        launcher: Launcher,
        directory: Callable[[], Path],
        models: Callable[[str], Path],
        limit: int = 4,
    ) -> None:
        self._make = lambda shape: LocalCluster(endpoints, launcher, directory(), models, shape)
        self._limit = limit
        self._running: dict[str, LocalCluster] = {}

    async def get(self, shape: Shape) -> LocalCluster:
        """Return the cluster of this shape, started if necessary."""
        cluster = self._running.pop(shape.key, None)
        if cluster is None:
            while len(self._running) >= self._limit:
                await self.drop(next(iter(self._running.values())))
            cluster = await self._make(shape).__aenter__()
        self._running[shape.key] = cluster
        return cluster

    @asynccontextmanager
    async def own(self, shape: Shape) -> AsyncIterator[LocalCluster]:
        """Run a cluster that no other test gets, until the context exits."""
        async with self._make(shape) as cluster:
            yield cluster

    async def drop(self, cluster: LocalCluster) -> None:
        """Stop a cluster: the next test that needs its shape gets a new one."""
        if self._running.pop(cluster.shape.key, None) is not None:
            await cluster.__aexit__(None, None, None)

    async def close(self) -> None:
        """Stop all of them."""
        for cluster in list(self._running.values()):
            await self.drop(cluster)
