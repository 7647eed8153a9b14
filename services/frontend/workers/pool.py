"""The connections to all workers."""

import asyncio
import itertools
from collections.abc import Callable

import grpc

from baton.errors import BatonError
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.rpc.channels import open_channel
from baton.settings import WorkerConnectionSettings
from baton.telemetry.logs import get_logger
from services.frontend.metrics import CONNECTIONS, CONNECTIONS_LOST
from services.frontend.workers.connection import WorkerConnection

_WATCH_SECONDS = 0.25

log = get_logger(__name__)


class WorkerPool:
    """One connection per worker that has been used, by instance id and incarnation.

    Opened at first use; dropped when it breaks or its worker leaves the cluster.
    """

    def __init__(self, suspect: Callable[[str], None], settings: WorkerConnectionSettings) -> None:
        """Pass `suspect` the instance id of every worker whose connection broke or fell silent."""
        self._suspect = suspect
        self._settings = settings
        self._stream_ids = itertools.count(1)
        self._connections: dict[tuple[str, str], WorkerConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "WorkerPool":
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        for connection in list(self._connections.values()):
            self._drop(connection, "the frontend stops")
        if self._closing:
            await asyncio.wait(self._closing)

    def get(self, target: router_pb2.Target) -> WorkerConnection:
        """Return the connection to a worker. No I/O: frames are sent once it is established."""
        key = (target.instance_id, target.incarnation)
        connection = self._connections.get(key)
        if connection is None:
            channel = open_channel(target.address)
            connection = WorkerConnection(
                target, channel, self._stream_ids, self._lost, self._settings
            )
            self._connections[key] = connection
            CONNECTIONS.set(len(self._connections))
            task = asyncio.create_task(_close_channel_after(connection, channel))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return connection

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Close the connection to a member that is gone or has started anew."""
        for (instance_id, incarnation), connection in list(self._connections.items()):
            if instance_id == instance.id and (not alive or incarnation != instance.incarnation):
                self._drop(connection, "the worker is gone")

    def _drop(self, connection: WorkerConnection, reason: str) -> None:
        log.info("worker.connection.closed", instance=connection.target.instance_id, reason=reason)
        self._remove(connection)
        connection.close(reason)

    def _lost(self, connection: WorkerConnection, error: BatonError) -> None:
        instance = connection.target.instance_id
        if self._remove(connection):
            CONNECTIONS_LOST.inc()
            log.warning("worker.connection.lost", instance=instance, error=error.message)
            self._suspect(instance)

    def _remove(self, connection: WorkerConnection) -> bool:
        key = connection.target.instance_id, connection.target.incarnation
        removed = self._connections.pop(key, None) is not None
        CONNECTIONS.set(len(self._connections))
        return removed

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for connection in self._connections.values():
                if connection.is_silent(self._settings.suspect_seconds):
                    self._suspect(connection.target.instance_id)


async def _close_channel_after(connection: WorkerConnection, channel: grpc.aio.Channel) -> None:
    await connection.wait_closed()
    await channel.close(None)
