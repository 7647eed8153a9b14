"""Keeps a fleet equal to the cluster: live instances, their load, and the KV they hold."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from baton.cluster.members.discovery import Discovery
from baton.cluster.members.membership import MembershipChange
from baton.internal.v1.cluster_pb2 import Instance
from baton.settings import WatchSettings
from services.router import metrics
from services.router.state.fleet import Fleet
from services.router.state.instances import Role
from services.router.watch.convert import ROLES, instance_from_proto, layout_from_proto
from services.router.watch.watch_streams import watch_instance

_MAINTENANCE_SECONDS = 0.5
_POLL_SECONDS = 0.01
_SYNC_SECONDS = 60.0


class ClusterWatch:
    """Watches discovery, and one set of streams per live worker and store. Owned by one event loop.

    An etcd outage has no effect here: the streams continue, and a broken one makes discovery probe
    its instance.

    Args:
        discovery: the live instances and models.
        fleet: what to keep up to date.
        settings: when a stream is broken.
        router_id: instance id of this router.
        on_change: called when something changed that a placement depends on.
        on_tended: called after each call of `Fleet.tend`.
    """

    def __init__(
        self,
        discovery: Discovery,
        fleet: Fleet,
        settings: WatchSettings,
        router_id: str,
        on_change: Callable[[], None],
        on_tended: Callable[[], None],
    ) -> None:
        self._discovery = discovery
        self._fleet = fleet
        self._settings = settings
        self._router_id = router_id
        self._on_change = on_change
        self._on_tended = on_tended
        self._watch_streams: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Apply discovery's changes until cancelled; the streams end with it."""
        async with asyncio.TaskGroup() as group:
            async for change in self._discovery.changes():
                self._apply(change, group)
                self._on_change()

    async def wait_ready(self, limit: float) -> None:
        """Wait until the cluster is known: etcd was listed and every worker reported its load.

        Args:
            limit: seconds to wait for all workers to report, once etcd was listed. Then it waits
                for one of them, as long as there are any.
        """
        while not self._discovery.synced:
            with suppress(TimeoutError):
                await self._discovery.wait_synced(_SYNC_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not self._fleet.all_reported(i.id for i in self._watched()):  # noqa: ASYNC110  # changes rarely, read once
                    await asyncio.sleep(_POLL_SECONDS)
        while self._has_workers() and not self._fleet.any_reported:  # noqa: ASYNC110  # likewise
            await asyncio.sleep(_POLL_SECONDS)

    async def run_maintenance(self) -> None:
        """Tend the fleet and update gauges, periodically, until cancelled."""
        fleet = self._fleet
        roles: set[Role] = set()
        while True:
            more = True
            while more:
                more = fleet.tend(time.monotonic()).more
                await asyncio.sleep(0)
            self._on_change()
            self._on_tended()
            metrics.TICKETS.set(len(fleet.tickets))
            metrics.INDEX_BLOCKS.set(len(fleet.index))
            counts = fleet.role_counts()
            roles |= counts.keys()
            for role in roles:
                metrics.INSTANCES.labels(role).set(counts[role])
            await asyncio.sleep(_MAINTENANCE_SECONDS)

    def _has_workers(self) -> bool:
        return any(ROLES[i.role].is_worker for i in self._watched())

    def _watched(self) -> list[Instance]:
        return [i for i in self._discovery.instances.values() if i.role in ROLES]

    def _apply(self, change: MembershipChange, group: asyncio.TaskGroup) -> None:
        instance = change.instance
        if change.kind == "models":
            self._fleet.set_layouts(map(layout_from_proto, self._discovery.models.values()))
        elif instance.role not in ROLES:
            return
        elif change.kind == "down":
            self._watch_streams.pop(instance.id).cancel()
            self._fleet.remove(instance.id)
        else:
            self._fleet.put(instance_from_proto(instance))
            if change.kind == "up":
                self._watch_streams[instance.id] = group.create_task(
                    watch_instance(
                        instance,
                        self._fleet,
                        self._discovery.report_unreachable,
                        self._on_change,
                        self._settings,
                        self._router_id,
                    )
                )
