"""The Get stream to one peer store, and lookups there."""

import asyncio
from contextlib import AsyncExitStack

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.attach import GetStream, open_get, open_session
from baton.rpc.channel.channel import Channel
from baton.rpc.timing.backoff import Backoff
from baton.settings import PeerSettings
from baton.telemetry.logs import get_logger
from services.kvstore.peers.requests import PeerRequests
from services.kvstore.peers.transports.nixl.receiver import NixlReceiver
from services.kvstore.store import Store

log = get_logger(__name__)

FIRST_RETRY_SECONDS = 0.05
LOOKUP_SECONDS = 0.5
"""Timeout of a lookup: the request for which a cut is chosen waits for it before it is computed."""


class PeerConnection:
    """Keeps a stream to one peer, and reopens it when it breaks, after growing pauses.

    Owned by PeerPool, which cancels `task`; on the event loop.

    Args:
        requests: what is requested from the peer.
        nixl: the transport `nixl` among those of `requests`, if any.
        store: flushed when the peer responds.
        incarnation: of this store's process.
        settings: deadlines of the peer.
    """

    def __init__(
        self,
        requests: PeerRequests,
        nixl: NixlReceiver | None,
        store: Store,
        incarnation: str,
        settings: PeerSettings,
    ) -> None:
        self._settings = settings
        self.requests = requests
        self.nixl = nixl
        self._store = store
        self._incarnation = incarnation
        self._stream: GetStream | None = None
        self._idle_since: float | None = None
        self._channel = Channel(requests.source.address)
        self.task = asyncio.create_task(self._run(), name="kv-peer")

    def flush(self, now: float) -> None:
        """Send pending frames, if there is a stream."""
        if self._stream is not None:
            for frame in self.requests.frames(now):
                self._stream.send(frame)

    def idle_for(self, now: float) -> float:
        """Return the seconds since something was last requested from the peer."""
        if not self.requests.idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return 0.0 if self._idle_since is None else now - self._idle_since

    async def lookup(self, request: pb.LookupRequest) -> bytes:
        """Return a byte per key, 1 if the peer holds the object; nothing if it does not answer."""
        self._idle_since = None
        try:
            found: pb.LookupResponse = await self._channel.stub(KvStoreServiceStub).Lookup(
                request, timeout=LOOKUP_SECONDS
            )
        except BatonError as error:
            log.info("kv.lookup.failed", peer=self.requests.source.store_id, error=str(error))
            return b""
        return found.held

    async def _run(self) -> None:
        source, settings, channel = self.requests.source, self._settings, self._channel
        backoff = Backoff(FIRST_RETRY_SECONDS, settings.retry_seconds)
        try:
            while True:
                try:
                    async with AsyncExitStack() as stack:
                        stream, epoch = await self._open(channel, stack)
                        backoff.reset()
                        await self._receive(stream, epoch)
                except (BatonError, TimeoutError) as error:
                    log.info("kv.peer.disconnected", peer=source.store_id, error=str(error))
                finally:
                    self._stream = None
                    self.requests.closed(self._store.clock())
                    self._store.schedule_flush()
                nixl, seconds = self.nixl, settings.probe_seconds
                if (
                    nixl is not None
                    and nixl.quarantined
                    and await is_refused(source.address, seconds)
                ):
                    nixl.peer_died()
                await asyncio.sleep(backoff.next())
        finally:
            await channel.close()

    async def _open(self, channel: Channel, stack: AsyncExitStack) -> tuple[GetStream, str]:
        seconds = self._settings.open_seconds
        session = await open_session(channel, self._store.store_id, self._incarnation, seconds)
        if session.store_id != self.requests.source.store_id:
            raise BatonError(
                Reason.NOT_FOUND, f"another store uses its address: {session.store_id}"
            )
        stream, _ = await open_get(channel, pb.Open(session_id=session.session_id), stack, seconds)
        return stream, session.epoch

    async def _receive(self, stream: GetStream, epoch: str) -> None:
        self.requests.opened(epoch, self._store.clock())
        self._stream = stream
        self._store.schedule_flush()
        while True:
            response = await stream.read()
            self.requests.handle(response, self._store.clock())
            self._store.schedule_flush()


async def is_refused(address: str, seconds: float) -> bool:
    """Return whether a host refuses connections to an address: the process there is dead.

    No response proves nothing: the host, or the network, may recover.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
