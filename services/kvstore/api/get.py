"""The Get stream of one reader."""

from collections.abc import Callable, Iterable, Sequence

from opentelemetry.trace import Span, SpanKind

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import MAX_READ_KEYS
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.wire.messages import Parts
from baton.settings import StoreLimits
from baton.settings.transports import GRPC, SHM
from baton.telemetry import tracing
from services.kvstore.api.fields import objects_of, sources_of, tenant_of
from services.kvstore.api.leases import MAX_FETCHES, ChunkQueue, StreamLeases
from services.kvstore.memory.slot import Lease
from services.kvstore.peers.transports.nixl.sender import PushStream, Send
from services.kvstore.reads.read_request import ReadRequest, ReadResult
from services.kvstore.store import GET, Store

INSTANT_SECONDS = 5.0
"""Most seconds without an object that a read without a wait may load from disk or fetch from
sources, ..."""
MAX_INSTANT_SECONDS = 60.0
"""... and most seconds in all: the KV of 131,072 tokens is gigabytes."""
_READY_OBJECTS = 4096
"""Most objects in one Ready, some 200 KiB."""


class GetStream:
    """Handles a reader's frames, and queues its responses. The Reader of its requests.

    Owned by the call's handler, on the event loop; `close` releases everything that it holds.

    Args:
        store: the store.
        limits: most concurrent reads, and how long they may wait.
        shared: whether the reader maps the arena, and needs no bytes.
        pushes: makes the NIXL part, for a reader that is a store and has objects written into its
            memory.
    """

    def __init__(
        self,
        store: Store,
        limits: StoreLimits = StoreLimits(),
        *,
        shared: bool = False,
        pushes: Callable[[Send], PushStream] | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._shared = shared
        self._reads: dict[int, ReadRequest] = {}
        """Requests that are not fully answered or still have leases, by correlation id."""
        self._spans: dict[ReadRequest, Span] = {}
        self._sending: set[ReadRequest] = set()
        """Requests whose objects are sent as soon as they are leased."""
        self._leases = StreamLeases()
        self._chunks = ChunkQueue(self._leases)
        self.send_queue: SendQueue[pb.GetResponse | Parts, pb.GetResponse | Parts] = SendQueue(
            more=self._next_chunk
        )
        self._handlers: dict[str, Callable[[pb.GetRequest], None]] = {
            "read": lambda frame: self._read(frame.read),
            "replace_sources": lambda frame: self._replace_sources(frame.replace_sources),
            "cancel_read": lambda frame: self._cancel(frame.cancel_read.correlation_id),
            "fetch": lambda frame: self._fetch(frame.fetch.lease_ids),
            "release": lambda frame: self._release(frame.release.lease_ids, bad=False),
            "report_read": lambda frame: self._report_read(frame.report_read),
            "report_bad": lambda frame: self._release(frame.report_bad.lease_ids, bad=True),
        }
        self._pushes: PushStream | None = None
        if pushes is not None:
            self._pushes = stream = pushes(self.send_queue.put)
            leases = self._leases
            self._handlers |= {
                "nixl_offer": lambda frame: stream.offer(frame.nixl_offer),
                "push": lambda frame: stream.push(frame.push, leases.slots(frame.push.lease_ids)),
                "abandon_pushes": lambda frame: stream.abandon(frame.abandon_pushes),
            }
        store.streams += 1

    def handle(self, frame: pb.GetRequest) -> None:
        """Handle one frame. An invalid one is answered with an error and changes nothing.

        Raises:
            BatonError: the kind of frame is not allowed here; the stream ends.
        """
        kind = frame.WhichOneof("frame")
        handler = self._handlers.get(kind or "")
        if kind is None or handler is None:
            raise invalid_field("frame", f"{kind} is not supported on this stream")
        try:
            handler(frame)
        except BatonError as error:
            correlation_id = getattr(getattr(frame, kind), "correlation_id", 0)
            answer = pb.CorrelatedError(correlation_id=correlation_id, status=error.to_status())
            self.send_queue.put(pb.GetResponse(error=answer))

    def close(self) -> None:
        """End the stream's requests and leases."""
        if self._pushes is not None:
            self._pushes.close()
        for request in list(self._reads.values()):
            self._store.waits.cancel(request)
            self._end_span(request)
        self._reads.clear()
        self._leases.clear()
        self._chunks.clear()
        self._sending.clear()
        self._store.streams -= 1

    # Reader

    def deliver(self, request: ReadRequest, result: ReadResult) -> None:
        parts: list[pb.Ready | pb.Missing] = [
            self._ready(request, result.ready[at : at + _READY_OBJECTS])
            for at in range(0, len(result.ready), _READY_OBJECTS)
        ]
        if result.will_not_come or result.timed_out:
            missing = pb.Missing(
                correlation_id=request.correlation_id,
                will_not_come=result.will_not_come,
                timed_out=result.timed_out,
            )
            parts.append(missing)
        parts[-1].done = result.done
        for part in parts:
            if isinstance(part, pb.Ready):
                self.send_queue.put(pb.GetResponse(ready=part))
            else:
                self.send_queue.put(pb.GetResponse(missing=part))
        if result.done:
            self._sending.discard(request)
            self._end_span(request)
            self._forget_if_over(request)

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        self._leases.discard(lease)
        self._forget_if_over(request)

    # Frames

    def _read(self, frame: pb.Read) -> None:
        number = frame.correlation_id
        if number <= 0 or number in self._reads:
            raise invalid_field("correlation_id", "must be above 0 and not in use")
        if len(self._reads) >= self._limits.max_reads:
            raise BatonError(
                Reason.NO_CAPACITY,
                f"a stream can have at most {self._limits.max_reads} concurrent reads",
                retry_after=1,
            )
        ids = objects_of(frame, MAX_READ_KEYS)
        wait = frame.wait.seconds + frame.wait.nanos / 1e9
        if not 0 <= wait <= self._limits.max_wait_seconds:
            raise invalid_field("wait", f"must be 0 to {self._limits.max_wait_seconds:g} s")
        tenant, sources = tenant_of(frame.tenant), sources_of(frame.sources)
        now = self._store.clock()
        deadline = now + (wait or INSTANT_SECONDS)
        request = ReadRequest(self, number, ids, deadline, instant=wait == 0, tenant=tenant)
        if request.instant:
            request.grace_seconds = INSTANT_SECONDS
            request.last_deadline = now + MAX_INSTANT_SECONDS
        request.set_sources(sources, self._store.store_id)
        self._reads[number] = request
        if frame.traceparent:
            parent = tracing.extract(frame.traceparent)
            span = tracing.tracer().start_span("kvstore.get", parent, SpanKind.SERVER)
            span.set_attribute("baton.kv.objects", len(ids))
            self._spans[request] = span
        if frame.send_bytes:
            self._sending.add(request)
        self._store.waits.add(request, now)

    def _replace_sources(self, frame: pb.ReplaceSources) -> None:
        request = self._reads.get(frame.correlation_id)
        if request is None or not request.unreported:
            return  # it was answered while the frame was in flight
        sources, now = sources_of(frame.sources), self._store.clock()
        self._store.waits.replace_sources(request, sources, self._store.store_id, now)

    def _cancel(self, correlation_id: int) -> None:
        request = self._reads.pop(correlation_id, None)
        if request is not None:
            for lease in request.leases:
                self._leases.discard(lease)
            self._store.waits.cancel(request)
            self._sending.discard(request)
            self._end_span(request)
        self.send_queue.put(pb.GetResponse(done=pb.Done(correlation_id=correlation_id)))

    def _fetch(self, lease_ids: Iterable[int]) -> None:
        numbers = self._leases.checked(lease_ids)
        if len(self._chunks) + len(numbers) > MAX_FETCHES:
            raise invalid_field("lease_ids", f"must be at most {MAX_FETCHES} at a time")
        self._chunks.add(numbers)
        self.send_queue.wake()

    def _release(self, lease_ids: Iterable[int], *, bad: bool) -> None:
        for number in self._leases.checked(lease_ids):
            held = self._leases.pop(number)
            if held is not None:  # otherwise it has expired
                lease, request = held
                self._store.waits.release(lease, bad=bad)
                self._forget_if_over(request)

    def _report_read(self, frame: pb.ReportRead) -> None:
        ids = objects_of(frame, MAX_READ_KEYS)
        self._store.moved_bytes[GET, SHM] += self._store.waits.count_reads(ids)

    # Internal

    def _ready(self, request: ReadRequest, results: Sequence[tuple[int, Lease]]) -> pb.Ready:
        """Number leases, and describe them."""
        numbers = self._leases.add(request, [lease for _, lease in results])
        slots = [lease.slot for _, lease in results]
        if self._shared:
            self._store.moved_bytes[GET, SHM] += sum(slot.object_bytes for slot in slots)
        if request in self._sending:
            self._chunks.add(numbers)
        return pb.Ready(
            correlation_id=request.correlation_id,
            indexes=[index for index, _ in results],
            lease_ids=numbers,
            offsets_bytes=[self._store.arena.file_offset(slot) for slot in slots],
            generations=[slot.generation for slot in slots],
            objects_bytes=[slot.object_bytes for slot in slots],
            digests=b"".join([slot.digest for slot in slots]),
        )

    def _next_chunk(self) -> Parts | None:
        chunk = self._chunks.next_chunk(self._store.arena.view)
        if chunk is None:
            return None
        frame, size = chunk
        self._store.moved_bytes[GET, GRPC] += size
        return frame

    def _forget_if_over(self, request: ReadRequest) -> None:
        if not request.unreported and not request.leases:
            self._reads.pop(request.correlation_id, None)

    def _end_span(self, request: ReadRequest) -> None:
        span = self._spans.pop(request, None)
        if span is not None:
            span.set_attribute("baton.kv.unanswered", request.unreported)
            span.end()
