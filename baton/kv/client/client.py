"""What workers use to put KV objects into their host's store and to get them out."""

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType

from baton.errors import invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.file import MappedArena
from baton.kv.arena.index import object_tag
from baton.kv.client.attach import StoreUnavailableError, attach
from baton.kv.client.connection import Connection
from baton.kv.client.fetch import KvFetch
from baton.kv.client.fetched import FetchedObject
from baton.kv.client.reservation import Reservation
from baton.kv.keys import pack
from baton.kv.objects import MAX_READ_KEYS, MAX_RESERVE_KEYS, object_ids_for
from baton.kv.registry import ALWAYS, NEVER, SHM, TRANSPORTS
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger

__all__ = ["FetchedObject", "KvFetch", "KvStoreClient", "Reservation", "StoreUnavailableError"]

log = get_logger(__name__)

RESERVE_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0
MAP_AGAIN_SECONDS = 0.1


class KvStoreClient:
    """Stays attached to a store, and attaches anew when the store starts anew.

    While the store is away every method raises StoreUnavailableError at once, and so does every
    call that waits for it.

    Args:
        resolve: the store's address now, `host:port`; None while there is none.
        client_id: this process's instance id.
        incarnation: this process's incarnation.
        transports: which may be used, of `shm` and `grpc`; shm is taken where it works.
        verify: which copies are checked, one of `registry.VERIFY`.
        executor: where more than a little is hashed; None: a thread of the client's own.
    """

    def __init__(
        self,
        resolve: Callable[[], str | None],
        client_id: str,
        incarnation: str,
        *,
        transports: Sequence[str] = TRANSPORTS,
        verify: str = ALWAYS,
        executor: Executor | None = None,
    ) -> None:
        self._resolve = resolve
        self._client_id = client_id
        self._incarnation = incarnation
        self._transports = transports
        self._verify = verify
        self._own_executor: Executor | None = None
        if executor is None:
            executor = self._own_executor = ThreadPoolExecutor(1, thread_name_prefix="kv-digest")
        self._executor = executor
        self._connection: Connection | None = None
        self._changed = asyncio.Condition()
        self._keeper: asyncio.Task[None] | None = None
        self._away = "not attached yet"

    async def __aenter__(self) -> "KvStoreClient":
        self._keeper = asyncio.create_task(self._keep(), name="kv-client")
        self._keeper.add_done_callback(_log_failure)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=False, cancel_futures=True)

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.broken.is_set()

    @property
    def store_id(self) -> str:
        """Instance id of the store; empty while it is away."""
        return self._connection.store_id if self._connection is not None else ""

    @property
    def epoch(self) -> str:
        """Epoch of the store; empty while it is away."""
        return self._connection.epoch if self._connection is not None else ""

    @property
    def transport(self) -> str:
        """`shm` or `grpc`; empty while the store is away."""
        return self._connection.transport if self._connection is not None else ""

    @property
    def memory_mapped(self) -> bool:
        """Whether copies wait for no page of shared memory any more; True where none is shared."""
        arena = self._connection.arena if self._connection is not None else None
        return arena is None or arena.populated_bytes == arena.header.data_bytes

    @property
    def shm_domain(self) -> str:
        """Names the memory shared with the store; empty where none is."""
        return self._connection.shm_domain if self._connection is not None else ""

    @property
    def leases(self) -> int:
        """Objects that this client holds leased now."""
        return self._connection.leases if self._connection is not None else 0

    @property
    def reservations(self) -> int:
        """Slots that this client holds reserved now."""
        return self._connection.reservations if self._connection is not None else 0

    async def wait_connected(self, timeout: float) -> bool:
        """Wait until the store is there, at most so many seconds; answers whether it is."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.connected)
        except TimeoutError:
            return False
        return True

    def fetch(
        self,
        keys: Sequence[bytes],
        layout_id: bytes,
        object_bytes: int,
        sources: Sequence[pb.KvSource] = (),
        wait: float = 0.0,
        tenant: str = "",
    ) -> KvFetch:
        """Ask for objects, also such that nobody has computed yet.

        Args:
            keys: 1 to 65,536 block keys of 16 bytes.
            layout_id: their layout.
            object_bytes: length of each object.
            sources: other stores that hold them or may come to.
            wait: seconds to wait for what is not there; 0: what store and sources hold now.
            tenant: on whose share what is brought from sources is counted.

        Returns:
            Batches of `FetchedObject` to iterate over; close it in a `finally`:

                fetching = client.fetch(...)
                try:
                    async for batch in fetching: ...copy and verify...
                finally:
                    await fetching.aclose()

        Raises:
            StoreUnavailableError: now, or from the iteration when the store goes away.
            BatonError: too many keys.
        """
        _check_count(keys, MAX_READ_KEYS)
        connection = self._here()
        object_ids = object_ids_for(layout_id, keys)
        trusted = self._verify == NEVER or (self._verify != ALWAYS and connection.transport == SHM)
        fetching = KvFetch(
            connection,
            object_ids,
            object_bytes,
            wait,
            sources,
            trusted=trusted,
            traceparent=tracing.inject(),
            tenant=tenant,
        )
        fetching.start()
        return fetching

    async def lookup(self, keys: Sequence[bytes], layout_id: bytes) -> list[bool]:
        """Which objects the store holds now, per key; nothing is leased or fetched.

        Args:
            keys: 1 to 65,536 block keys of 16 bytes.
            layout_id: their layout.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store refused, or too many keys.
        """
        _check_count(keys, MAX_READ_KEYS)
        connection = self._here()
        held = [False] * len(keys)
        unknown: Sequence[int] = range(len(keys))
        if connection.arena is not None:
            held = connection.arena.index.holds(pack(keys), object_tag(layout_id, 0, 0, 0)).tolist()
            unknown = [index for index, found in enumerate(held) if not found]
        if unknown:
            wanted = keys if len(unknown) == len(keys) else [keys[index] for index in unknown]
            answer = await connection.lookup(
                pb.LookupRequest(layout_id=layout_id, keys=pack(wanted))
            )
            if len(answer.held) != len(wanted):
                raise StoreUnavailableError(
                    f"the store answered for {len(answer.held)} of {len(wanted)} keys"
                )
            for index, found in zip(unknown, answer.held, strict=True):
                held[index] = bool(found)
        return held

    async def reserve(
        self,
        keys: Sequence[bytes],
        layout_id: bytes,
        object_bytes: int,
        last_is_partial: bool = False,
        tenant: str = "",
        recompute_seconds: float = 0.0,
    ) -> Reservation:
        """Ask for room to write objects to. Never waits for room.

        Args:
            keys: 1 to 4,096 block keys of 16 bytes.
            layout_id: their layout.
            object_bytes: length of each object, above 0.
            last_is_partial: the last key names a partial block, which is kept briefly.
            tenant: on whose share and quota the objects are counted.
            recompute_seconds: how long computing one of them again would take; 0: not known.

        Returns:
            Slots for the keys that got one. Write, `commit`, and `aclose` it in a `finally`.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store refused, or too many keys.
        """
        _check_count(keys, MAX_RESERVE_KEYS)
        connection = self._here()
        number = connection.number()
        frame = pb.Reserve(
            correlation_id=number,
            layout_id=layout_id,
            keys=pack(keys),
            object_bytes=object_bytes,
            last_is_partial=last_is_partial,
            traceparent=tracing.inject(),
            tenant=tenant,
            recompute_seconds=recompute_seconds,
        )
        try:
            answer = await connection.ask(number, pb.PutRequest(reserve=frame), RESERVE_SECONDS)
        except asyncio.CancelledError:
            # What the answer would have given must not stay reserved.
            connection.put.post(pb.PutRequest(abandon=pb.Abandon(correlation_id=number)))
            raise
        object_ids = object_ids_for(layout_id, keys)
        return Reservation(
            connection, number, object_ids, object_bytes, answer.reserved, self._executor
        )

    async def will_not_come(self, keys: Sequence[bytes], layout_id: bytes) -> None:
        """Tell those who wait for these objects that this client will not write them.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: too many keys.
        """
        _check_count(keys, MAX_READ_KEYS)
        if keys:
            frame = pb.WillNotCome(layout_id=layout_id, keys=pack(keys))
            await self._here().put.send(pb.PutRequest(will_not_come=frame))

    def _here(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise StoreUnavailableError(self._away)
        connection.check()
        return connection

    async def _keep(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            address = self._resolve()
            if address is not None:
                try:
                    await self._stay(address)
                    delay = FIRST_RETRY_SECONDS
                except StoreUnavailableError as error:
                    self._away = str(error)
                except Exception as error:
                    self._away = f"cannot attach to the store at {address}: {error!r}"
                    log.exception("kv client failed", address=address)
            await asyncio.sleep(delay * random.uniform(0.5, 1))
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    async def _stay(self, address: str) -> None:
        """Attach and stay until the connection breaks."""
        attachment = await attach(address, self._client_id, self._incarnation, self._transports)
        connection = Connection(attachment)
        mapping = None
        if connection.arena is not None:
            mapping = asyncio.create_task(_map_memory(connection.arena), name="kv-map-memory")
            mapping.add_done_callback(_log_failure)
        try:
            await self._set(connection)
            log.info("attached to kv store", store=connection.store_id, by=connection.transport)
            await connection.broken.wait()
            self._away = connection.reason
            log.warning("kv store is away", store=connection.store_id, reason=connection.reason)
        finally:
            self._connection = None
            if mapping is not None:
                mapping.cancel()
            await connection.aclose()

    async def _set(self, connection: Connection) -> None:
        self._connection = connection
        async with self._changed:
            self._changed.notify_all()


def _check_count(keys: Sequence[bytes], limit: int) -> None:
    # A message that is too long for the server would end the stream that all callers share.
    if len(keys) > limit:
        raise invalid_field("keys", f"{len(keys)} keys are more than {limit}: ask in several calls")


async def _map_memory(arena: MappedArena) -> None:
    """Map the arena's memory in the background, so that the first copies need not wait for it."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, arena.populate_next):
        if arena.populated_bytes >= arena.touched_bytes:
            await asyncio.sleep(MAP_AGAIN_SECONDS)  # the store has not touched the rest yet


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("kv client failed", exc_info=error)
