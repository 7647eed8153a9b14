"""Keeps a fleet equal to the cluster: who lives, how busy they are, what they hold."""

import asyncio
import time
from contextlib import suppress

from baton.cluster.discovery import Discovery
from baton.cluster.membership import Change
from baton.internal.v1.cluster_pb2 import ROLE_KVSTORE, Instance
from services.router import metrics
from services.router.state.fleet import WORKER_ROLES, Fleet
from services.router.state.watch_streams import follow

_WATCHED_ROLES = WORKER_ROLES | {ROLE_KVSTORE}
_TEND_SECONDS = 0.25
_SETTLE_SECONDS = 0.01
_SYNC_SECONDS = 60.0
_SWEEP_KEYS = 4096


class ClusterView:
    """Follows discovery, and one set of streams per live worker and store.

    Etcd being away changes nothing here: the streams go on, and a broken one makes discovery probe
    its instance.

    Args:
        discovery: says who lives.
        fleet: what to keep up to date.
    """

    def __init__(self, discovery: Discovery, fleet: Fleet) -> None:
        self._discovery = discovery
        self._fleet = fleet
        self._feeds: dict[str, asyncio.Task[None]] = {}

    async def follow(self) -> None:
        """Apply what discovery says, until cancelled; the streams end with it."""
        async with asyncio.TaskGroup() as group:
            async for change in self._discovery.changes():
                self._apply(change, group)

    async def settle(self, limit: float) -> None:
        """Wait until the cluster is known: etcd was listed and every worker said how busy it is.

        Args:
            limit: seconds to wait for workers that say nothing, once etcd was listed.
        """
        while not self._discovery.synced:
            with suppress(TimeoutError):
                await self._discovery.wait_synced(_SYNC_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not self._fleet.settled(self._watched()):  # noqa: ASYNC110  # no event tells
                    await asyncio.sleep(_SETTLE_SECONDS)

    async def tend(self) -> None:
        """Do what is due now and then, until cancelled: sweep the index, expire tickets, count."""
        fleet = self._fleet
        roles: set[str] = set()
        while True:
            swept = False
            while not swept:
                swept = not fleet.index.sweep(_SWEEP_KEYS)
                await asyncio.sleep(0)
            fleet.pledges_changed(fleet.tickets.expire(time.monotonic()))
            metrics.TICKETS.set(len(fleet.tickets))
            metrics.INDEX_BLOCKS.set(len(fleet.index))
            counts = fleet.counts()
            roles |= counts.keys()
            for role in roles:
                metrics.INSTANCES.labels(role.removeprefix("ROLE_").lower()).set(counts[role])
            await asyncio.sleep(_TEND_SECONDS)

    def _watched(self) -> list[Instance]:
        return [i for i in self._discovery.instances.values() if i.role in _WATCHED_ROLES]

    def _apply(self, change: Change, group: asyncio.TaskGroup) -> None:
        instance = change.instance
        if change.kind == "models":
            self._fleet.cards(self._discovery.models.values())
        elif instance.role not in _WATCHED_ROLES:
            return
        elif change.kind == "down":
            self._feeds.pop(instance.id).cancel()
            self._fleet.down(instance.id)
        else:
            self._fleet.up(instance)
            if change.kind == "up":
                self._feeds[instance.id] = group.create_task(
                    follow(instance, self._fleet, self._discovery.suspect)
                )
