"""One reader's stream."""

import re
from collections.abc import Callable, Iterable, Sequence

from opentelemetry.trace import Span

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import MAX_CHUNK_BYTES, MAX_READ_KEYS, MAX_TENANT_BYTES, parse_object_ids
from baton.kv.registry import GRPC, SHM
from baton.kv.wire import bulk
from baton.telemetry import tracing
from services.kvstore.api.send_queue import SendQueue
from services.kvstore.memory.slot import Lease, Slot
from services.kvstore.peers.transports.nixl.sender import PushStream, Send
from services.kvstore.reads.read_request import Answer, ReadRequest, Source
from services.kvstore.store import GET, Store

MAX_READS = 4096
"""Open requests of one stream."""
MAX_SOURCES = 16
MAX_WAIT_SECONDS = 3600.0
MAX_FETCHES = 65_536
"""Leases of one stream whose bytes are still to be sent."""
INSTANT_SECONDS = 5.0
"""How long a request without a wait may take to bring what sources hold."""
_READY_OBJECTS = 4096
"""Objects in one Ready, some 200 KiB."""
_CHUNK_OBJECTS = 4096
"""Objects in one ReadChunk."""
_ADDRESS = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,253}:\d{1,5}")


class GetStream:
    """Handles a reader's frames; `send_queue` holds the answers. Is the Reader of its requests.

    Args:
        store: the store.
        shared: the reader maps the arena, and asks for no bytes.
        pushes: what this reader, if it is a store, asks to be written into its memory.
    """

    def __init__(
        self,
        store: Store,
        *,
        shared: bool = False,
        pushes: Callable[[Send], PushStream] | None = None,
    ) -> None:
        self._store = store
        self._shared = shared
        self._reads: dict[int, ReadRequest] = {}
        """Wants that are not answered or still have leases."""
        self._spans: dict[ReadRequest, Span] = {}
        self._sending: set[ReadRequest] = set()
        """Wants whose objects are sent as soon as they are leased."""
        self._leases: dict[int, tuple[Lease, ReadRequest]] = {}
        self._ids: dict[Lease, int] = {}
        self._last_id = 0
        self._fetches: dict[int, int] = {}
        """Leases to send, and how much of each is sent; only of the first one something is."""
        self.send_queue: SendQueue[pb.GetResponse | bytes] = SendQueue(more=self._next_chunk)
        self._handlers: dict[str, Callable[[pb.GetRequest], None]] = {
            "read": lambda frame: self._read(frame.read),
            "replace_sources": lambda frame: self._replace_sources(frame.replace_sources),
            "cancel_read": lambda frame: self._cancel(frame.cancel_read.correlation_id),
            "fetch": lambda frame: self._fetch(frame.fetch.lease_ids),
            "release": lambda frame: self._release(frame.release.lease_ids, bad=False),
            "report_read": lambda frame: self._has_read(frame.report_read),
            "report_bad": lambda frame: self._release(frame.report_bad.lease_ids, bad=True),
        }
        self._pushes: PushStream | None = None
        if pushes is not None:
            self._pushes = stream = pushes(self.send_queue.put)
            self._handlers |= {
                "nixl_offer": lambda frame: stream.offer(frame.nixl_offer),
                "push": lambda frame: stream.push(frame.push, self._leased(frame.push.lease_ids)),
                "abandon_pushes": lambda frame: stream.abandon(frame.abandon_pushes),
            }
        store.streams += 1

    def handle(self, frame: pb.GetRequest) -> None:
        """Take one frame in. A bad one is answered by an error and changes nothing.

        Raises:
            BatonError: it is no frame for here: the stream ends.
        """
        kind = frame.WhichOneof("frame")
        handler = self._handlers.get(kind or "")
        if kind is None or handler is None:
            raise BatonError(Reason.INVALID_FIELD, f"{kind} is not a frame for here", field="frame")
        try:
            handler(frame)
        except BatonError as error:
            correlation_id = getattr(getattr(frame, kind), "correlation_id", 0)
            answer = pb.CorrelatedError(correlation_id=correlation_id, status=error.to_status())
            self.send_queue.put(pb.GetResponse(error=answer))

    def close(self) -> None:
        """The stream ended: its requests and leases do too."""
        if self._pushes is not None:
            self._pushes.close()
        for request in list(self._reads.values()):
            self._store.waits.cancel(request)
            self._end_span(request)
        self._reads.clear()
        self._leases.clear()
        self._ids.clear()
        self._fetches.clear()
        self._sending.clear()
        self._store.streams -= 1
        self._store.flush()

    # Reader

    def answer(self, request: ReadRequest, answer: Answer) -> None:
        parts: list[pb.Ready | pb.Missing] = [
            self._ready(request, answer.ready[at : at + _READY_OBJECTS])
            for at in range(0, len(answer.ready), _READY_OBJECTS)
        ]
        if answer.will_not_come or answer.timed_out:
            missing = pb.Missing(
                correlation_id=request.correlation_id,
                will_not_come=answer.will_not_come,
                timed_out=answer.timed_out,
            )
            parts.append(missing)
        parts[-1].done = answer.done
        for part in parts:
            if isinstance(part, pb.Ready):
                self.send_queue.put(pb.GetResponse(ready=part))
            else:
                self.send_queue.put(pb.GetResponse(missing=part))
        if answer.done:
            self._sending.discard(request)
            self._end_span(request)
            self._forget_if_over(request)

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        number = self._ids.pop(lease, None)
        if number is not None:
            del self._leases[number]
        self._forget_if_over(request)

    # Frames

    def _read(self, frame: pb.Read) -> None:
        number = frame.correlation_id
        if number <= 0 or number in self._reads:
            raise _invalid("correlation_id", "is above 0 and not in use")
        if len(self._reads) >= MAX_READS:
            raise BatonError(
                Reason.NO_CAPACITY, f"a stream has at most {MAX_READS} requests", retry_after=1
            )
        try:
            ids = parse_object_ids(frame.layout_id, frame.keys, frame.part, MAX_READ_KEYS)
        except ValueError as error:
            raise BatonError(Reason.INVALID_FIELD, str(error), field="read") from error
        wait = frame.wait.seconds + frame.wait.nanos / 1e9
        if not 0 <= wait <= MAX_WAIT_SECONDS:
            raise _invalid("wait", f"is 0 to {MAX_WAIT_SECONDS:g} s")
        if len(frame.tenant.encode()) > MAX_TENANT_BYTES:
            raise _invalid("tenant", f"has at most {MAX_TENANT_BYTES} bytes")
        sources = sources_of(frame.sources)
        now = self._store.clock()
        deadline = now + (wait or INSTANT_SECONDS)
        request = ReadRequest(self, number, ids, deadline, instant=wait == 0, tenant=frame.tenant)
        request.set_sources(sources, self._store.store_id)
        self._reads[number] = request
        if frame.traceparent:
            span = tracing.tracer().start_span("kvstore.get", tracing.extract(frame.traceparent))
            span.set_attribute("baton.kv.objects", len(ids))
            self._spans[request] = span
        if frame.send_bytes:
            self._sending.add(request)
        self._store.waits.add(request, now)

    def _replace_sources(self, frame: pb.ReplaceSources) -> None:
        request = self._reads.get(frame.correlation_id)
        if request is None or not request.open:
            return  # it was answered while the frame travelled
        sources = sources_of(frame.sources)
        self._store.waits.replace_sources(
            request, sources, self._store.store_id, self._store.clock()
        )

    def _cancel(self, correlation_id: int) -> None:
        request = self._reads.pop(correlation_id, None)
        if request is not None:
            for lease in request.leases:
                number = self._ids.pop(lease, None)
                if number is not None:
                    del self._leases[number]
            self._store.waits.cancel(request)
            self._sending.discard(request)
            self._end_span(request)
        self.send_queue.put(pb.GetResponse(done=pb.Done(correlation_id=correlation_id)))

    def _fetch(self, lease_ids: Iterable[int]) -> None:
        ids = list(lease_ids)
        self._check_ids(ids)
        if len(self._fetches) + len(ids) > MAX_FETCHES:
            raise _invalid("lease_ids", f"are at most {MAX_FETCHES} at a time")
        for number in ids:
            self._fetches.setdefault(number, 0)
        self.send_queue.wake()

    def _leased(self, lease_ids: Iterable[int]) -> list[Slot] | None:
        """The slots of leases; None where one of them has ended."""
        ids = list(lease_ids)
        self._check_ids(ids)
        if not all(number in self._leases for number in ids):
            return None
        return [self._leases[number][0].slot for number in ids]

    def _release(self, lease_ids: Iterable[int], *, bad: bool) -> None:
        ids = list(lease_ids)
        self._check_ids(ids)
        for number in ids:
            lease, request = self._leases.pop(number, (None, None))
            if lease is not None and request is not None:  # else it lapsed
                del self._ids[lease]
                self._store.waits.release(lease, bad=bad)
                self._forget_if_over(request)

    def _has_read(self, frame: pb.ReportRead) -> None:
        try:
            ids = parse_object_ids(frame.layout_id, frame.keys, frame.part, MAX_READ_KEYS)
        except ValueError as error:
            raise BatonError(Reason.INVALID_FIELD, str(error), field="report_read") from error
        self._store.moved_bytes[GET, SHM] += self._store.waits.have_read(ids)

    # Inside

    def _ready(self, request: ReadRequest, answers: Sequence[tuple[int, Lease]]) -> pb.Ready:
        """Number leases and say what they are of."""
        ids = range(self._last_id + 1, self._last_id + 1 + len(answers))
        self._last_id += len(answers)
        for number, (_, lease) in zip(ids, answers, strict=True):
            self._leases[number] = (lease, request)
            self._ids[lease] = number
        slots = [lease.slot for _, lease in answers]
        if self._shared:
            self._store.moved_bytes[GET, SHM] += sum(slot.object_bytes for slot in slots)
        if request in self._sending:
            self._fetches.update(dict.fromkeys(ids, 0))
        return pb.Ready(
            correlation_id=request.correlation_id,
            indexes=[index for index, _ in answers],
            lease_ids=ids,
            offsets_bytes=[self._store.arena.file_offset(slot) for slot in slots],
            generations=[slot.generation for slot in slots],
            objects_bytes=[slot.object_bytes for slot in slots],
            digests=b"".join([slot.digest for slot in slots]),
        )

    def _next_chunk(self) -> bytes | None:
        """Bytes of the leases that are next, as one frame; those that ended are gone."""
        head = pb.ReadChunk()
        parts: list[memoryview] = []
        room = MAX_CHUNK_BYTES
        while self._fetches and room and len(head.lease_ids) < _CHUNK_OBJECTS:
            number, at = next(iter(self._fetches.items()))
            if not head.lease_ids:
                head.offset_bytes = at
            lease, _ = self._leases.get(number, (None, None))
            size = left = 0
            if lease is not None:
                left = lease.slot.object_bytes - at
                size = min(left, room)
                parts.append(self._store.arena.view(lease.slot)[at : at + size])
            if size < left:
                self._fetches[number] = at + size
            else:
                del self._fetches[number]
            head.lease_ids.append(number)
            head.pieces_bytes.append(size)
            room -= size
        if not head.lease_ids:
            return None
        self._store.moved_bytes[GET, GRPC] += MAX_CHUNK_BYTES - room
        return bulk.read_chunk(head, parts)

    def _check_ids(self, ids: list[int]) -> None:
        if not all(0 < number <= self._last_id for number in ids):
            raise _invalid("lease_ids", "are leases that this stream was given")

    def _forget_if_over(self, request: ReadRequest) -> None:
        if not request.open and not request.leases:
            self._reads.pop(request.correlation_id, None)

    def _end_span(self, request: ReadRequest) -> None:
        span = self._spans.pop(request, None)
        if span is not None:
            span.set_attribute("baton.kv.unanswered", request.open)
            span.end()


def sources_of(messages: Iterable[pb.KvSource]) -> list[Source]:
    """The sources that a request names.

    Raises:
        BatonError: too many, or one is malformed.
    """
    sources = [Source(message.store_id, message.address) for message in messages]
    if len(sources) > MAX_SOURCES:
        raise _invalid("sources", f"are at most {MAX_SOURCES}")
    if not all(s.store_id and _ADDRESS.fullmatch(s.address) for s in sources):
        raise _invalid("sources", "have a store_id and an address host:port")
    return sources


def _invalid(field: str, text: str) -> BatonError:
    return BatonError(Reason.INVALID_FIELD, f"{field} {text}", field=field)
