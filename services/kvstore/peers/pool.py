"""Other stores: one Get stream to each that something is wanted of."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import count

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import GetStream, open_get, open_session
from baton.kv.objects import ObjectId
from baton.rpc.channels import open_channel
from baton.telemetry.logs import get_logger
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.requests import PeerRequests
from services.kvstore.peers.transports.nixl.receiver import (
    FIRST_RETRY_SECONDS as FIRST_NIXL_RETRY_SECONDS,
)
from services.kvstore.peers.transports.nixl.receiver import PUSH_SECONDS, Landing, NixlReceiver
from services.kvstore.peers.transports.nixl.sender import MESSAGE
from services.kvstore.peers.transports.nixl.thread import NixlThread
from services.kvstore.reads.read_request import ReadRequest, Source
from services.kvstore.store import Store

log = get_logger(__name__)

MAX_PEERS = 256
"""A further peer is not asked; requests that named it wait for their other sources."""
IDLE_SECONDS = 30.0
"""A stream is closed after this long without anything to ask."""
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0
PROBE_SECONDS = 1.0


class PeerPool:
    """Requests what is missing here from the sources of reads. Use as an async context manager."""

    def __init__(
        self,
        store: Store,
        incarnation: str,
        *,
        nixl: NixlThread | None = None,
        verify: bool = True,
        idle_seconds: float = IDLE_SECONDS,
        push_seconds: float = PUSH_SECONDS,
        retry_seconds: float = FIRST_NIXL_RETRY_SECONDS,
    ) -> None:
        self._store = store
        self._incarnation = incarnation
        self._idle_seconds = idle_seconds
        window = store.table.cap_bytes // 4
        self._in_flight = InFlight(store, window_bytes=window, verify=verify)
        self._nixl = nixl
        if nixl is not None:
            nixl.told = self._told
        self._push_seconds = push_seconds
        self._retry_seconds = retry_seconds
        self._push_numbers = count(1)
        self._checker = ThreadPoolExecutor(1, "kv-check")
        self._links: dict[Source, _PeerConnection] = {}
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
        """Slots that peers may still write to though nobody waits for that."""
        return sum(link.asks.transfers.receiver.quarantined for link in self._links.values())

    def fetch(self, request: ReadRequest, object_id: ObjectId) -> None:
        for source in request.sources:
            link = self._links.get(source)
            if link is None:
                if len(self._links) >= MAX_PEERS:
                    continue
                link = self._links[source] = self._link(source)
            link.asks.seek(request, object_id)

    def cancel(self, request: ReadRequest, object_id: ObjectId) -> None:
        for source in request.sources:
            link = self._links.get(source)
            if link is not None:
                link.asks.forget(request, object_id)

    def flush(self, now: float) -> None:
        for source, link in list(self._links.items()):
            link.send(now)
            if link.idle_for(now) > self._idle_seconds:
                link.task.cancel()
                del self._links[source]

    def _link(self, source: Source) -> "_PeerConnection":
        receiver = NixlReceiver(
            self._in_flight,
            self._nixl,
            self._push_numbers,
            push_seconds=self._push_seconds,
            retry_seconds=self._retry_seconds,
        )
        asks = PeerRequests(source, self._in_flight, self._store.waits, receiver)
        link = _PeerConnection(asks, self._store, self._incarnation)
        self._watch(link.task)
        return link

    def _told(self, agent: str, message: bytes) -> None:
        """An agent says that it has written a push."""
        if len(message) != MESSAGE.size:
            return
        (push_id,) = MESSAGE.unpack(message)
        for link in self._links.values():
            landing = link.asks.transfers.receiver.arrived(agent, push_id)
            if landing is not None:
                self._watch(asyncio.create_task(self._land(link, landing)))
                return

    async def _land(self, link: "_PeerConnection", landing: Landing) -> None:
        flights = list(landing.flights.values())
        right = [True] * len(flights)
        if self._in_flight.verify:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._checker, self._in_flight.check, flights)
        link.asks.landed(landing, right, self._store.clock())
        self._store.schedule_flush()

    def _watch(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a peer's task failed", exc_info=error)


class _PeerConnection:
    """Keeps a stream to one peer; opens it again with growing pauses when it breaks."""

    def __init__(self, asks: PeerRequests, store: Store, incarnation: str) -> None:
        self.asks = asks
        self.stream: GetStream | None = None
        self._store = store
        self._incarnation = incarnation
        self._idle_since: float | None = None
        self.task = asyncio.create_task(self._run(), name="kv-peer")

    def send(self, now: float) -> None:
        """Send what is to be asked, if there is a stream."""
        if self.stream is not None:
            for frame in self.asks.frames(now):
                self.stream.send(frame)

    def idle_for(self, now: float) -> float:
        """Seconds since something was wanted of the peer."""
        if not self.asks.idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return 0.0 if self._idle_since is None else now - self._idle_since

    async def _run(self) -> None:
        source, delay = self.asks.source, FIRST_RETRY_SECONDS
        channel = open_channel(source.address)
        try:
            while True:
                try:
                    async with AsyncExitStack() as stack:
                        stream, epoch = await self._open(channel, stack)
                        delay = FIRST_RETRY_SECONDS
                        await self._converse(stream, epoch)
                except (BatonError, grpc.RpcError, TimeoutError) as error:
                    log.info("peer store is away", peer=source.store_id, error=str(error))
                finally:
                    self.stream = None
                    self.asks.closed(self._store.clock())
                    self._store.schedule_flush()
                if self.asks.transfers.receiver.quarantined and await nobody_listens(
                    source.address
                ):
                    self.asks.transfers.receiver.died()
                await asyncio.sleep(delay * random.uniform(0.5, 1))
                delay = min(2 * delay, LAST_RETRY_SECONDS)
        finally:
            await channel.close(None)

    async def _open(
        self, channel: grpc.aio.Channel, stack: AsyncExitStack
    ) -> tuple[GetStream, str]:
        session = await open_session(channel, self._store.store_id, self._incarnation)
        if session.store_id != self.asks.source.store_id:
            raise BatonError(Reason.NOT_FOUND, f"{session.store_id} answers at its address")
        stream, _ = await open_get(channel, pb.Open(session_id=session.session_id), stack)
        return stream, session.epoch

    async def _converse(self, stream: GetStream, epoch: str) -> None:
        self.asks.opened(epoch, self._store.clock())
        self.stream = stream
        self._store.schedule_flush()
        while True:
            response = await stream.read()
            self.asks.handle(response, self._store.clock())
            self._store.schedule_flush()


async def nobody_listens(address: str) -> bool:
    """Whether the host says that no process listens there: whoever did is dead.

    Silence proves nothing: the host, or the way to it, may come back.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
