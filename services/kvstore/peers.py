"""Other stores: one Get stream to each that something is wanted of."""

import asyncio
import random
from contextlib import AsyncExitStack
from types import TracebackType

import grpc

from baton.kv.attach import GetStream, open_get, open_session
from baton.kv.objects import ObjectId
from baton.rpc.channels import open_channel
from baton.rpc.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from baton.v1 import kvstore_pb2 as pb
from services.kvstore.asks import Asks
from services.kvstore.flights import Flights
from services.kvstore.store import Store
from services.kvstore.wants import Source, Want

log = get_logger(__name__)

MAX_PEERS = 256
"""A further peer is not asked; wants that named it wait for their other sources."""
IDLE_SECONDS = 30.0
"""A stream is closed after this long without anything to ask."""
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0


class Peers:
    """Asks the sources of wants for what is missing here. Use as an async context manager."""

    def __init__(
        self,
        store: Store,
        incarnation: str,
        *,
        verify: bool = True,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._store = store
        self._incarnation = incarnation
        self._idle_seconds = idle_seconds
        window = store.table.cap_bytes // 4
        self._flights = Flights(store, window_bytes=window, verify=verify)
        self._links: dict[Source, _Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Peers":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def seek(self, want: Want, object_id: ObjectId) -> None:
        for source in want.sources:
            link = self._links.get(source)
            if link is None:
                if len(self._links) >= MAX_PEERS:
                    continue
                link = self._links[source] = self._link(source)
            link.asks.seek(want, object_id)

    def forget(self, want: Want, object_id: ObjectId) -> None:
        for source in want.sources:
            link = self._links.get(source)
            if link is not None:
                link.asks.forget(want, object_id)

    def settle(self, now: float) -> None:
        for source, link in list(self._links.items()):
            link.send(now)
            if link.idle_for(now) > self._idle_seconds:
                link.task.cancel()
                del self._links[source]

    def _link(self, source: Source) -> "_Link":
        asks = Asks(source, self._flights, self._store.waits)
        link = _Link(asks, self._store, self._incarnation)
        self._tasks.add(link.task)
        link.task.add_done_callback(self._ended)
        return link

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("peer link failed", exc_info=error)


class _Link:
    """Keeps a stream to one peer; opens it again with growing pauses when it breaks."""

    def __init__(self, asks: Asks, store: Store, incarnation: str) -> None:
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
                self.stream.post(frame)

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
                        stream = await self._open(channel, stack)
                        delay = FIRST_RETRY_SECONDS
                        await self._converse(stream)
                except (BatonError, grpc.RpcError, TimeoutError) as error:
                    log.info("peer store is away", peer=source.store_id, error=str(error))
                finally:
                    self.stream = None
                    self.asks.closed(self._store.clock())
                    self._store.settle()
                await asyncio.sleep(delay * random.uniform(0.5, 1))
                delay = min(2 * delay, LAST_RETRY_SECONDS)
        finally:
            await channel.close(None)

    async def _open(self, channel: grpc.aio.Channel, stack: AsyncExitStack) -> GetStream:
        session = await open_session(channel, self._store.store_id, self._incarnation)
        if session.store_id != self.asks.source.store_id:
            raise BatonError(Reason.NOT_FOUND, f"{session.store_id} answers at its address")
        stream, _ = await open_get(channel, pb.Open(session_id=session.session_id), stack)
        return stream

    async def _converse(self, stream: GetStream) -> None:
        self.asks.opened()
        self.stream = stream
        self._store.settle()
        while True:
            response = await stream.read()
            self.asks.handle(response, self._store.clock())
            self._store.settle()
