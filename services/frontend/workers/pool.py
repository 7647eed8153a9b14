"""The connections to all workers."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.rpc.channel.channel import Channel
from baton.rpc.protocol import PAUSE
from baton.rpc.timing.backoff import Backoff
from baton.settings import WorkerConnectionSettings
from baton.telemetry.logs import get_logger
from services.frontend.metrics import CONNECTIONS, CONNECTIONS_LOST
from services.frontend.workers.connection import WorkerConnection

_WORKERS = (cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)
_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 2.0
_REMEMBER_SECONDS = 10.0
"""How long a worker that has left the cluster stays lost: routers may learn of it later."""

log = get_logger(__name__)


class _PoolMember:
    """A worker in the cluster."""

    def __init__(self, target: router_pb2.Target, can_pause: bool) -> None:
        self.target = target
        self.can_pause = can_pause
        self.backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        self.retry: asyncio.TimerHandle | None = None
        """Set while its connection is broken."""


class WorkerPool:
    """One connection per worker of the cluster, by instance id and incarnation.

    Opened when the worker appears, and again after a pause when it breaks; closed when the worker
    leaves. A worker is *lost* from the break of its connection until it is connected again, and
    once it drains: requests need not be tried there. Lives on the event loop.
    """

    def __init__(
        self,
        suspect: Callable[[str], None],
        has_died: Callable[[str, str], Awaitable[bool]],
        settings: WorkerConnectionSettings,
    ) -> None:
        """Start without connections.

        Args:
            suspect: called with the instance id of every worker whose connection broke.
            has_died: returns soon whether the worker of an id and incarnation is certainly dead.
            settings: of each connection.
        """
        self.on_change: Callable[[], None] = lambda: None
        """Called when a worker was connected, or lost."""
        self._suspect = suspect
        self._has_died = has_died
        self._settings = settings
        self._stream_ids = itertools.count(1)
        self._members: dict[str, _PoolMember] = {}
        self._connections: dict[tuple[str, str], WorkerConnection] = {}
        self._lost_workers: dict[str, str] = {}
        """Incarnations by instance id. Workers that left are dropped after a moment."""
        self._closing: set[asyncio.Task[None]] = set()
        self._probing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "WorkerPool":
        return self

    async def __aexit__(self, *_: object) -> None:
        for instance_id in list(self._members):
            self._leave(instance_id)
        for connection in list(self._connections.values()):
            self._drop(connection, "the frontend is stopping")
        for probing in self._probing:
            probing.cancel()
        if ending := self._closing | self._probing:
            await asyncio.wait(ending)

    @property
    def lost(self) -> Mapping[str, str]:
        """Workers that accept no requests (see `WorkerPool`): incarnations by id; a live view."""
        return self._lost_workers

    def usable(self, instance: cluster_pb2.Instance) -> bool:
        """Return whether a worker answered on its connection, which is open, and is not lost."""
        if self._lost_workers.get(instance.id) == instance.incarnation:
            return False
        connection = self._connections.get((instance.id, instance.incarnation))
        return connection is not None and connection.ready

    def get(self, target: router_pb2.Target) -> WorkerConnection:
        """Return the connection to a worker. No I/O: frames are sent once it is established."""
        key = (target.instance_id, target.incarnation)
        connection = self._connections.get(key)
        if connection is None:
            channel = Channel(target.address)
            connection = WorkerConnection(
                target,
                channel,
                self._stream_ids,
                self._ready,
                self._leaving,
                self._lost,
                self._settings,
            )
            self._connections[key] = connection
            member = self._members.get(target.instance_id)
            if member is not None and member.target.incarnation == target.incarnation:
                connection.can_pause = member.can_pause
            CONNECTIONS.set(len(self._connections))
            task = asyncio.create_task(_close_channel_after(connection, channel))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return connection

    def find_out_if_died(self, target: router_pb2.Target, tell: Callable[[bool], None]) -> None:
        """Report to `tell`, soon, whether a worker whose connection broke is certainly dead."""

        async def find_out() -> None:
            tell(await self._has_died(target.instance_id, target.incarnation))

        task = asyncio.create_task(find_out())
        self._probing.add(task)
        task.add_done_callback(self._probing.discard)

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Connect to a new worker; close the connection to one that left or restarted."""
        if instance.role not in _WORKERS:
            return
        instance_id, incarnation = instance.id, instance.incarnation
        for key, connection in list(self._connections.items()):
            if key[0] == instance_id and (not alive or key[1] != incarnation):
                self._drop(connection, "the worker disconnected")
        member = self._members.get(instance_id)
        if alive and member is not None and member.target.incarnation == incarnation:
            if instance.draining:
                self._lost_workers[instance_id] = incarnation
            return
        self._leave(instance_id)
        if alive:
            self._lost_workers.pop(instance_id, None)
            target = router_pb2.Target(
                instance_id=instance_id, incarnation=incarnation, address=instance.address
            )
            member = self._members[instance_id] = _PoolMember(target, PAUSE in instance.features)
            self.get(target).can_pause = member.can_pause
        else:
            self._note_gone(instance_id, incarnation)

    def _leave(self, instance_id: str) -> None:
        member = self._members.pop(instance_id, None)
        if member is not None and member.retry is not None:
            member.retry.cancel()

    def _note_gone(self, instance_id: str, incarnation: str) -> None:
        self._lost_workers[instance_id] = incarnation
        forget = partial(self._forget, instance_id, incarnation)
        asyncio.get_running_loop().call_later(_REMEMBER_SECONDS, forget)

    def _forget(self, instance_id: str, incarnation: str) -> None:
        if instance_id not in self._members and self._lost_workers.get(instance_id) == incarnation:
            del self._lost_workers[instance_id]

    def _drop(self, connection: WorkerConnection, reason: str) -> None:
        log.info("worker.connection.closed", peer=connection.target.instance_id, reason=reason)
        self._remove(connection)
        connection.close(reason)

    def _ready(self, connection: WorkerConnection) -> None:
        target = connection.target
        member = self._members.get(target.instance_id)
        if member is not None and member.target.incarnation == target.incarnation:
            member.backoff.reset()
            self._lost_workers.pop(target.instance_id, None)
        self.on_change()

    def _leaving(self, connection: WorkerConnection) -> None:
        """Stop placing on a worker that hands its streams over: routers may not know yet."""
        target = connection.target
        member = self._members.get(target.instance_id)
        if member is not None and member.target.incarnation == target.incarnation:
            self._lost_workers[target.instance_id] = target.incarnation

    def _lost(self, connection: WorkerConnection, error: BatonError) -> None:
        if not self._remove(connection):
            return
        target = connection.target
        instance_id, incarnation = target.instance_id, target.incarnation
        if error.reason is Reason.DRAINING:
            log.info("worker.connection.closed", peer=instance_id, reason=error.message)
        else:
            CONNECTIONS_LOST.inc()
            log.warning("worker.connection.lost", peer=instance_id, error=error.message)
        member = self._members.get(instance_id)
        if member is None:
            self._note_gone(instance_id, incarnation)
        elif member.target.incarnation == incarnation:
            self._lost_workers[instance_id] = incarnation
            delay, again = member.backoff.next(), partial(self.get, target)
            member.retry = asyncio.get_running_loop().call_later(delay, again)
        self._suspect(instance_id)
        self.on_change()

    def _remove(self, connection: WorkerConnection) -> bool:
        key = connection.target.instance_id, connection.target.incarnation
        removed = self._connections.pop(key, None) is not None
        CONNECTIONS.set(len(self._connections))
        return removed


async def _close_channel_after(connection: WorkerConnection, channel: Channel) -> None:
    await connection.wait_closed()
    await channel.close()
