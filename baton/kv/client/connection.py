"""What travels on one attachment to a store, and who waits for it."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import Attachment, StoreUnavailableError
from baton.kv.client.staging import Staging
from baton.kv.keys import pack
from baton.kv.objects import MAX_READ_KEYS, ObjectId
from baton.kv.registry import GRPC, SHM
from baton.kv.wire.bulk import ReadBulk
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

TELL_SECONDS = 0.02
TELL_OBJECTS = 4096
"""What was read through the index is told to the store after so long, or when it is so many."""


class Reader(Protocol):
    """Waits for the answers of one want."""

    def on_ready(self, ready: pb.Ready) -> None: ...

    def on_piece(self, lease_id: int, offset: int, data: memoryview) -> None: ...

    def on_done(self, number: int) -> None: ...

    def on_broken(self) -> None: ...


class Connection:
    """See the module's text. `broken` is set once it is of no use any more.

    Counts leases and reserved slots that this client holds at the store.
    """

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self.store_id = attachment.store_id
        self.epoch = attachment.epoch
        self.shm_domain = attachment.shm_domain
        self.arena = attachment.arena
        self.lock = attachment.lock
        self.get = attachment.get
        self.put = attachment.put
        self.staging = Staging()
        self.transport = GRPC if attachment.arena is None else SHM
        self.broken = asyncio.Event()
        self.reason = ""
        self.leases = 0
        self.reservations = 0
        self._number = 0
        self._read: dict[ObjectId, list[bytes]] = {}
        """Keys of what was read without a lease and is not told yet, by their kind: an id without
        a key."""
        self._read_count = 0
        self._telling: asyncio.TimerHandle | None = None
        self._released: list[int] = []
        """Leases to be given back in the loop's next turn, in one frame: a consumer that waits for
        nothing ends many batches in one turn."""
        self._readers: dict[int, Reader] = {}
        self._lease_readers: dict[int, Reader] = {}
        """Whose bytes come in chunks, by lease."""
        self._answers: dict[int, deque[asyncio.Future[pb.PutResponse]]] = {}
        self._tasks = [
            asyncio.create_task(self._read_get(), name="kv-get-reader"),
            asyncio.create_task(self._read_put(), name="kv-put-reader"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._reader_ended)

    def number(self) -> int:
        """A new correlation id."""
        self._number += 1
        return self._number

    # Reading

    def want(self, number: int, frame: pb.GetRequest, reader: Reader) -> None:
        """Ask, and route the answers to `reader` until `forget`."""
        self._readers[number] = reader
        self.get.post(frame)

    def forget(self, number: int) -> None:
        """Route nothing more."""
        self._readers.pop(number, None)

    def give_back(self, good: Sequence[int], bad: Sequence[int]) -> None:
        """Release leases, and report those whose objects were wrong."""
        if self.broken.is_set():
            return
        self.leases -= len(good) + len(bad)
        for lease_id in (*good, *bad):
            self._lease_readers.pop(lease_id, None)
        if good:
            if not self._released:
                asyncio.get_running_loop().call_soon(self._release)
            self._released.extend(good)
        if bad:
            self.get.post(pb.GetRequest(report_bad=pb.ReportBad(lease_ids=bad)))

    def _release(self) -> None:
        released, self._released = self._released, []
        self.get.post(pb.GetRequest(release=pb.Release(lease_ids=released)))

    async def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        """Ask which objects are there.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store refused.
        """
        return await self._attachment.lookup(request)

    def report_read(self, kind: ObjectId, keys: Sequence[bytes]) -> None:
        """Note what was read without a lease; the store is told now and then."""
        if not self._read:
            self._telling = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)
        self._read.setdefault(kind, []).extend(keys)
        self._read_count += len(keys)
        if self._read_count >= TELL_OBJECTS:
            self._tell()

    def _tell(self) -> None:
        read, self._read, self._read_count = self._read, {}, 0
        if self._telling is not None:
            self._telling.cancel()
        if self.broken.is_set():
            return
        for kind, keys in read.items():
            for at in range(0, len(keys), MAX_READ_KEYS):
                frame = pb.ReportRead(
                    layout_id=kind.layout_id,
                    keys=pack(keys[at : at + MAX_READ_KEYS]),
                    part=kind.message(),
                )
                self.get.post(pb.GetRequest(report_read=frame))

    # Writing

    async def ask(self, number: int, frame: pb.PutRequest, seconds: float) -> pb.PutResponse:
        """Post a frame and wait for its answer.

        Raises:
            StoreUnavailableError: the stream broke, or was given up because no answer came in time.
            BatonError: the store refused the frame.
        """
        self.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[pb.PutResponse] = loop.create_future()
        self._answers.setdefault(number, deque()).append(future)
        self.put.post(frame)
        # Failing wakes everybody who waits here, this one too.
        patience = loop.call_later(seconds, self.fail, f"no answer within {seconds:g} s")
        try:
            response = await future
        finally:
            patience.cancel()
        if response.HasField("error"):
            raise BatonError.from_status(response.error.status)
        return response

    # The end

    def check(self) -> None:
        """Raise StoreUnavailableError if the connection is broken."""
        if self.broken.is_set():
            raise StoreUnavailableError(self.reason)

    def fail(self, reason: str) -> None:
        """Give the connection up: everybody who waits on it learns that the store is away."""
        if self.broken.is_set():
            return
        self.reason = reason
        self.broken.set()
        self.leases = self.reservations = 0
        for reader in {*self._readers.values(), *self._lease_readers.values()}:
            reader.on_broken()
        for futures in self._answers.values():
            for future in futures:
                if not future.done():
                    future.set_exception(StoreUnavailableError(reason))
                    future.exception()  # its task may have gone: then nobody else looks

    async def aclose(self) -> None:
        """Close it. Reservations that are still open keep the writer's lock until they are not."""
        self._tell()
        self.fail("closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._attachment.aclose()

    # Inside

    def _reader_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("kv client failed", task=task.get_name(), exc_info=error)
            self.fail(f"what the store said makes no sense: {error!r}")

    async def _read_get(self) -> None:
        try:
            while True:
                self._take(await self.get.read())
        except BatonError as error:
            self.fail(f"the store's Get stream ended: {error}")

    def _take(self, frame: pb.GetResponse | ReadBulk) -> None:
        if isinstance(frame, ReadBulk):
            for lease_id, offset, data in frame.pieces():
                owner = self._lease_readers.get(lease_id)
                if owner is not None:
                    owner.on_piece(lease_id, offset, data)
            return
        kind = frame.WhichOneof("frame")
        if kind == "ready":
            reader = self._readers.get(frame.ready.correlation_id)
            if reader is not None:  # else it was cancelled, which gave these leases back
                lease_ids = frame.ready.lease_ids
                self.leases += len(lease_ids)
                if self.arena is None:
                    self._lease_readers.update(dict.fromkeys(lease_ids, reader))
                reader.on_ready(frame.ready)
        # A refused want is one that nothing comes for.
        if kind == "error" or (kind in ("ready", "missing") and getattr(frame, kind).done):
            number = getattr(frame, kind).correlation_id
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.on_done(number)

    async def _read_put(self) -> None:
        try:
            while True:
                frame = await self.put.read()
                kind = frame.WhichOneof("frame")
                number = getattr(frame, kind).correlation_id if kind else 0
                futures = self._answers.get(number)
                if futures:
                    future = futures.popleft()
                    if not futures:
                        del self._answers[number]
                    if not future.done():
                        future.set_result(frame)
        except BatonError as error:
            self.fail(f"the store's Put stream ended: {error}")
