"""The connections to other stores."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import ObjectId
from baton.settings import PeerSettings
from baton.telemetry.logs import get_logger
from services.kvstore.peers.connection import PeerConnection
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.requests import PeerRequests
from services.kvstore.peers.transports.base import PeerTransport
from services.kvstore.peers.transports.grpc import GrpcTransport
from services.kvstore.peers.transports.nixl.push import NOTIFICATION, Push
from services.kvstore.peers.transports.nixl.receiver import NixlReceiver
from services.kvstore.peers.transports.nixl.thread import NixlThread
from services.kvstore.reads.read_request import ReadRequest, ReadSource
from services.kvstore.store import Store

log = get_logger(__name__)


class PeerPool:
    """Requests missing objects from other stores. Use as an async context manager.

    Owned by the process, on the event loop; one thread checks objects written by peers. Bounded by
    `max_peers` connections, each with one stream, and one window of bytes in flight for all.

    Args:
        store: receives the objects.
        incarnation: of this store's process.
        nixl: this store's agent; None: all objects come over gRPC.
        verify: whether received bytes are checked against their digests.
        settings: of the connections and transports.
    """

    def __init__(
        self,
        store: Store,
        incarnation: str,
        *,
        nixl: NixlThread | None = None,
        verify: bool = True,
        settings: PeerSettings = PeerSettings(),
    ) -> None:
        self._store = store
        self._incarnation = incarnation
        self._settings = settings
        window = store.table.cap_bytes // 4
        self._in_flight = InFlight(store, window_bytes=window, verify=verify)
        self._nixl = nixl
        if nixl is not None:
            nixl.on_notification = self._on_notification
        self._push_ids = count(1)
        self._checker = ThreadPoolExecutor(1, "kv-check")
        self._connections: dict[ReadSource, PeerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "PeerPool":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._checker.shutdown()

    @property
    def quarantined(self) -> int:
        """Slots that peers may still write to after their transfers were given up."""
        receivers = [connection.nixl for connection in self._connections.values()]
        return sum(nixl.quarantined for nixl in receivers if nixl is not None)

    def fetch(self, request: ReadRequest, object_id: ObjectId) -> None:
        """Request an object, which a read waits for, from the read's sources."""
        for source in request.sources:
            connection = self._connection(source)
            if connection is not None:  # otherwise the read waits for its other sources
                connection.requests.fetch(request, object_id)

    async def lookup(self, source: ReadSource, request: pb.LookupRequest) -> bytes:
        """Return a byte per key, 1 if a store holds the object; nothing if it does not answer."""
        connection = self._connection(source)
        return b"" if connection is None else await connection.lookup(request)

    def cancel(self, request: ReadRequest, object_id: ObjectId) -> None:
        """End a read's interest in an object; no error if there is none."""
        for source in request.sources:
            connection = self._connections.get(source)
            if connection is not None:
                connection.requests.cancel(request, object_id)

    def flush(self, now: float) -> None:
        """Send pending frames, and close idle connections."""
        for source, connection in list(self._connections.items()):
            connection.flush(now)
            if connection.idle_for(now) > self._settings.idle_seconds:
                connection.task.cancel()
                del self._connections[source]

    def _connection(self, source: ReadSource) -> PeerConnection | None:
        """Return the connection to a store, opened on first use; None: there are too many."""
        connection = self._connections.get(source)
        if connection is None and len(self._connections) < self._settings.max_peers:
            connection = self._connections[source] = self._connect(source)
        return connection

    def _connect(self, source: ReadSource) -> PeerConnection:
        transports: list[PeerTransport] = [
            GrpcTransport(self._in_flight, self._settings.stall_seconds)
        ]
        receiver = None
        if self._nixl is not None:
            receiver = NixlReceiver(
                self._in_flight,
                self._nixl,
                self._push_ids,
                self._settings,
            )
            transports.insert(0, receiver)
        requests = PeerRequests(source, self._in_flight, self._store.waits, transports)
        connection = PeerConnection(
            requests, receiver, self._store, self._incarnation, self._settings
        )
        self._watch(connection.task)
        return connection

    def _on_notification(self, agent: str, message: bytes) -> None:
        """Handle an agent's notification that it has written a push."""
        if len(message) != NOTIFICATION.size:
            return
        (push_id,) = NOTIFICATION.unpack(message)
        for connection in self._connections.values():
            nixl = connection.nixl
            push = nixl.written(agent, push_id) if nixl is not None else None
            if nixl is not None and push is not None:
                self._watch(asyncio.create_task(self._finish(connection.requests, nixl, push)))
                return

    async def _finish(self, requests: PeerRequests, nixl: NixlReceiver, push: Push) -> None:
        right: Sequence[bool] = [True] * len(push.transfers)
        if self._in_flight.verify:
            loop = asyncio.get_running_loop()
            check = self._in_flight.check
            right = await loop.run_in_executor(self._checker, check, push.transfers)
        requests.end(nixl.finish(push, right), self._store.clock())
        self._store.schedule_flush()

    def _watch(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("kv.peer.task_failed", exc_info=error)
