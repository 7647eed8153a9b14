"""Client with which workers put KV objects into their host's store and get them out."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import StoreUnavailableError
from baton.kv.client.fetch import KvFetch
from baton.kv.client.fetched_object import FetchedObject
from baton.kv.client.lookup import lookup
from baton.kv.client.pending import PendingObjects
from baton.kv.client.reconnector import Reconnector
from baton.kv.client.reservation import Reservation
from baton.kv.keys import pack
from baton.kv.objects import MAX_READ_KEYS, MAX_RESERVE_KEYS, check_key_count, object_ids_for
from baton.kv.verify import ALWAYS, NEVER
from baton.settings import KvSettings
from baton.settings.transports import SHM
from baton.telemetry import tracing

__all__ = ["FetchedObject", "KvFetch", "KvStoreClient", "Reservation", "StoreUnavailableError"]


class KvStoreClient:
    """A process's client of a store: an async context on the asyncio loop.

    It stays attached to the store and reattaches when the store restarts. While the store is
    unavailable, every method, and every waiting call, raises StoreUnavailableError immediately.

    Args:
        resolve: returns the current address of the store, `host:port`; None while there is none.
        client_id: this process's instance id.
        incarnation: this process's incarnation.
        settings: allowed transports, which copies are checked, and timeouts of the store.
        executor: where all but small objects are hashed; None: a thread that the client owns.
    """

    def __init__(
        self,
        resolve: Callable[[], str | None],
        client_id: str,
        incarnation: str,
        *,
        settings: KvSettings = KvSettings(),
        executor: Executor | None = None,
    ) -> None:
        self._store = Reconnector(resolve, client_id, incarnation, settings)
        self._settings = settings
        self._verify = settings.verify
        self._own_executor: Executor | None = None
        if executor is None:
            executor = self._own_executor = ThreadPoolExecutor(1, thread_name_prefix="kv-digest")
        self._executor = executor

    async def __aenter__(self) -> "KvStoreClient":
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.__aexit__()
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=False, cancel_futures=True)

    @property
    def connected(self) -> bool:
        return self._store.connected

    @property
    def store_id(self) -> str:
        """Instance id of the store; empty while the store is unavailable."""
        return self._store.connection.store_id if self._store.connection else ""

    @property
    def epoch(self) -> str:
        """Epoch of the store; empty while the store is unavailable."""
        return self._store.connection.epoch if self._store.connection else ""

    @property
    def transport(self) -> str:
        """`shm` or `grpc`; empty while the store is unavailable."""
        return self._store.connection.transport if self._store.connection else ""

    @property
    def memory_mapped(self) -> bool:
        """Whether all shared memory is mapped, so copies cause no page fault; True if none is
        shared.
        """
        arena = self._store.connection.arena if self._store.connection else None
        return arena is None or arena.populated_bytes == arena.header.data_bytes

    @property
    def shm_domain(self) -> str:
        """Name of the memory shared with the store; empty where none is."""
        return self._store.connection.shm_domain if self._store.connection else ""

    @property
    def leases(self) -> int:
        """Number of objects that this client holds leased now."""
        return self._store.connection.gets.leases if self._store.connection else 0

    @property
    def reservations(self) -> int:
        """Number of slots that this client holds reserved now."""
        return self._store.connection.puts.reservations if self._store.connection else 0

    async def wait_connected(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the store; return whether it is connected."""
        return await self._store.wait_connected(timeout)

    def fetch(
        self,
        keys: Sequence[bytes],
        layout_id: bytes,
        object_bytes: int,
        sources: Sequence[pb.KvSource] = (),
        wait: float = 0.0,
        tenant: str = "",
        group: int = 0,
    ) -> KvFetch:
        """Fetch objects, including objects that are still being computed.

        Args:
            keys: 1 to 65,536 block keys of 16 bytes.
            layout_id: their layout.
            object_bytes: length of each object.
            sources: other stores that hold them or may hold them later.
            wait: seconds to wait for missing objects; 0: only what store and sources hold now.
            tenant: tenant to whose share objects from sources are charged.
            group: group of the layout.

        Returns:
            Batches of `FetchedObject` to iterate over; close it in a `finally`:

            fetch = client.fetch(...) try:
            async for batch in fetch: ...copy and verify... finally: await fetch.aclose()

        Raises:
            StoreUnavailableError: immediately, or during iteration if the store is lost.
            BatonError: too many keys.
        """
        check_key_count(keys, MAX_READ_KEYS)
        connection = self._store.require()
        trusted = self._verify == NEVER or (self._verify != ALWAYS and connection.transport == SHM)
        pending = PendingObjects(
            connection,
            object_ids_for(layout_id, keys, group),
            object_bytes,
            wait,
            sources,
            trusted=trusted,
            traceparent=tracing.inject(),
            tenant=tenant,
        )
        pending.start()
        return KvFetch(connection, pending, wait, self._settings.silence_seconds)

    async def lookup(
        self,
        keys: Sequence[bytes],
        layout_id: bytes,
        group: int = 0,
        sources: Sequence[pb.KvSource] = (),
    ) -> list[bool]:
        """Return which objects the store, or one of the sources, holds now, per key.

        None is leased or fetched.

        Args:
            keys: 1 to 65,536 block keys of 16 bytes.
            layout_id: their layout.
            group: group of the layout.
            sources: other stores, asked by the store for what it does not hold.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store rejected the request, or there are too many keys.
        """
        check_key_count(keys, MAX_READ_KEYS)
        return await lookup(self._store.require(), keys, layout_id, group, sources)

    async def reserve(
        self,
        keys: Sequence[bytes],
        layout_id: bytes,
        object_bytes: int,
        last_is_partial: bool = False,
        tenant: str = "",
        recompute_seconds: float = 0.0,
        group: int = 0,
        chain: pb.BlockChain | None = None,
    ) -> Reservation:
        """Reserve slots to write objects to. Never waits for space.

        Args:
            keys: 1 to 4,096 block keys of 16 bytes.
            layout_id: their layout.
            object_bytes: length of each object, above 0.
            last_is_partial: the last key names a partial block, which the store keeps briefly.
            tenant: tenant to whose share and quota the objects are charged.
            recompute_seconds: time that recomputing one of them would take; 0: unknown.
            group: group of the layout.
            chain: for layouts with groups, where the blocks are in their chains; None: unknown.

        Returns:
            Slots for the keys that got one. Write to them, `commit`, and call `aclose` in a
            `finally`.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store rejected the request, or there are too many keys.
        """
        check_key_count(keys, MAX_RESERVE_KEYS)
        connection = self._store.require()
        reservation_id = connection.puts.new_id()
        frame = pb.Reserve(
            correlation_id=reservation_id,
            layout_id=layout_id,
            keys=pack(keys),
            part=_part(group),
            object_bytes=object_bytes,
            last_is_partial=last_is_partial,
            traceparent=tracing.inject(),
            tenant=tenant,
            recompute_seconds=recompute_seconds,
            chain=chain,
        )
        try:
            response = await connection.puts.request(
                reservation_id, pb.PutRequest(reserve=frame), self._settings.reserve_seconds
            )
        except asyncio.CancelledError:
            # The slots that the response would have returned must not stay reserved.
            connection.puts.abandon(reservation_id)
            raise
        return Reservation(
            connection,
            reservation_id,
            object_ids_for(layout_id, keys, group),
            object_bytes,
            response.reserved,
            self._executor,
            self._settings.commit_seconds,
        )

    async def will_not_come(self, keys: Sequence[bytes], layout_id: bytes, group: int = 0) -> None:
        """Tell readers that wait for these objects that this client will not write them.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: there are too many keys.
        """
        check_key_count(keys, MAX_READ_KEYS)
        if keys:
            frame = pb.WillNotCome(layout_id=layout_id, keys=pack(keys), part=_part(group))
            await self._store.require().puts.send_bulk(pb.PutRequest(will_not_come=frame))


def _part(group: int) -> pb.ObjectPart | None:
    """Return the part of a group's objects; None for the first, as in messages without one."""
    return pb.ObjectPart(group=group) if group else None
