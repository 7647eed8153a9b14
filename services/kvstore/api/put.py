"""The Put stream of one writer."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.trace import Span, SpanKind

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.writer_lock import WriterLockProbe
from baton.kv.digest import DIGEST_BYTES, split_digests, start_digest
from baton.kv.objects import MAX_CHUNK_BYTES, MAX_READ_KEYS, MAX_RESERVE_KEYS
from baton.kv.wire.bulk import WriteBulk
from baton.rpc.streams.send_queue import SendQueue
from baton.settings.transports import GRPC, SHM
from baton.telemetry import tracing
from services.kvstore.api.chains import links_of
from services.kvstore.api.fields import objects_of, tenant_of
from services.kvstore.memory.slot import Slot, SlotRefusal, SlotState
from services.kvstore.store import PUT, Store


class _Upload:
    """Bytes received for one slot so far, hashed as they arrived."""

    def __init__(self, slot: Slot) -> None:
        self.written = 0
        self.digest = start_digest(slot.object_id, slot.object_bytes)


class _Reservation:
    """Slots of one Reserve that are neither committed nor released, by index."""

    def __init__(self, slots: dict[int, Slot], recompute_seconds: float, span: Span | None) -> None:
        self.slots = slots
        self.recompute_seconds = recompute_seconds
        """Seconds for one object; 0: not known."""
        self.uploads: dict[int, _Upload] = {}
        self.span = span


class PutStream:
    """Handles a writer's frames, and queues its responses.

    Owned by the call's handler, on the event loop; `close` releases everything that it holds, which
    is bounded by the table's cap.

    Args:
        store: the store.
        writer: proof of the writer's life if it writes through shared memory; None: it sends
            bytes, in order for each object.
    """

    def __init__(self, store: Store, writer: WriterLockProbe | None) -> None:
        self._store = store
        self._writer = writer
        self._reservations: dict[int, _Reservation] = {}
        self.send_queue: SendQueue[pb.PutResponse, pb.PutResponse] = SendQueue()
        self._handlers: dict[str, Callable[[Any], None]] = {
            "reserve": self._reserve,
            "write_chunk": self._write,
            "commit": self._commit,
            "abandon": self._abandon,
            "will_not_come": self._will_not_come,
        }
        store.streams += 1

    def handle(self, frame: pb.PutRequest | WriteBulk) -> None:
        """Handle one frame. An invalid one is answered with an error and changes nothing.

        Raises:
            BatonError: the error has no correlation id to be reported with; the stream ends.
        """
        kind = "write_chunk" if isinstance(frame, WriteBulk) else frame.WhichOneof("frame") or ""
        inner: Any = frame if isinstance(frame, WriteBulk) else getattr(frame, kind, None)
        handler = self._handlers.get(kind)
        if handler is None:
            raise invalid_field("frame", f"{kind} is not supported on this stream")
        try:
            handler(inner)
        except BatonError as error:
            correlation_id = getattr(getattr(inner, "head", inner), "correlation_id", 0)
            if not correlation_id:
                raise
            answer = pb.CorrelatedError(correlation_id=correlation_id, status=error.to_status())
            self.send_queue.put(pb.PutResponse(error=answer))

    def close(self) -> None:
        """End the reservations that are not committed."""
        for reservation in self._reservations.values():
            self._store.expire_slots(reservation.slots.values())
            _end(reservation)
        self._reservations.clear()
        if self._writer is not None:
            self._store.ended_writers.add(self._writer)
        self._store.streams -= 1

    def _reserve(self, frame: pb.Reserve) -> None:
        if frame.correlation_id <= 0 or frame.correlation_id in self._reservations:
            raise invalid_field("correlation_id", "must be above 0 and not in use")
        ids, tenant = objects_of(frame, MAX_RESERVE_KEYS), tenant_of(frame.tenant)
        if frame.object_bytes <= 0:
            raise invalid_field("object_bytes", "must be above 0")
        if not 0 <= frame.recompute_seconds < math.inf:
            raise invalid_field("recompute_seconds", "must be finite and at least 0")
        answer = pb.Reserved(correlation_id=frame.correlation_id)
        slots: dict[int, Slot] = {}
        answers = self._store.reserve(
            ids,
            frame.object_bytes,
            partial=frame.last_is_partial,
            writer=self._writer,
            tenant=tenant,
            recompute_seconds=frame.recompute_seconds,
            links=links_of(frame.chain, ids) if frame.HasField("chain") else (),
        )
        for index, slot in enumerate(answers):
            if slot is SlotRefusal.PRESENT:
                answer.present.append(index)
            elif isinstance(slot, SlotRefusal):
                answer.exhausted.append(index)
            else:
                slots[index] = slot
        answer.indexes.extend(slots)
        data_at = self._store.arena.header.data_at
        answer.offsets_bytes.extend([data_at + slot.offset for slot in slots.values()])
        if slots:
            span = None
            if frame.traceparent:
                parent = tracing.extract(frame.traceparent)
                span = tracing.tracer().start_span("kvstore.put", parent, SpanKind.SERVER)
                span.set_attribute("baton.kv.objects", len(slots))
            self._reservations[frame.correlation_id] = _Reservation(
                slots, frame.recompute_seconds, span
            )
        self.send_queue.put(pb.PutResponse(reserved=answer))

    def _write(self, frame: WriteBulk) -> None:
        head, data = frame
        if self._writer is not None:
            raise invalid_field("write_chunk", "is only supported on streams without shared memory")
        if not 0 < data.nbytes <= MAX_CHUNK_BYTES:
            raise invalid_field("data", f"must be 1 to {MAX_CHUNK_BYTES} bytes")
        # Checked completely before anything is written: an invalid frame changes nothing.
        pieces: list[tuple[Slot, _Upload, memoryview]] = []
        offset = head.offset_bytes
        for index in head.indexes:
            reservation = self._holding(head.correlation_id, [index])
            slot = reservation.slots[index]
            upload = reservation.uploads.setdefault(index, _Upload(slot))
            if offset != upload.written or not 0 <= offset < slot.object_bytes:
                raise invalid_field(
                    "offset_bytes", f"must continue at {upload.written} within the object"
                )
            piece, data = data[: slot.object_bytes - offset], data[slot.object_bytes - offset :]
            pieces.append((slot, upload, piece))
            offset = 0
        if data.nbytes or len(set(head.indexes)) < len(pieces) or not pieces[-1][2].nbytes:
            raise invalid_field("indexes", "must name each object of these bytes once")
        for slot, upload, piece in pieces:
            if slot.state is SlotState.RESERVED:  # else it expired, as the commit will report
                view = self._store.arena.view(slot)
                view[upload.written : upload.written + piece.nbytes] = piece
                upload.digest.update(piece)
            upload.written += piece.nbytes
            self._store.moved_bytes[PUT, GRPC] += piece.nbytes

    def _commit(self, frame: pb.Commit) -> None:
        indexes, packed = list(frame.indexes), frame.digests
        if not indexes or len(set(indexes)) < len(indexes):
            raise invalid_field("indexes", "must name at least one key, each once")
        if len(packed) != DIGEST_BYTES * len(indexes):
            raise invalid_field("digests", f"must have {DIGEST_BYTES} bytes for each index")
        reservation = self._holding(frame.correlation_id, indexes)
        digests = split_digests(packed)
        if self._writer is None:
            for index, digest in zip(indexes, digests, strict=True):
                self._check_upload(reservation, index, digest)
        slots = [reservation.slots.pop(index) for index in indexes]
        if self._writer is None:
            for index in indexes:
                reservation.uploads.pop(index, None)
        else:
            self._store.moved_bytes[PUT, SHM] += sum([slot.object_bytes for slot in slots])
        readable = self._store.commit(slots, digests, reservation.recompute_seconds)
        self._forget_if_empty(frame.correlation_id)
        answer = pb.Committed(correlation_id=frame.correlation_id, readable=readable)
        self.send_queue.put(pb.PutResponse(committed=answer))

    def _check_upload(self, reservation: _Reservation, index: int, digest: bytes) -> None:
        slot, upload = reservation.slots[index], reservation.uploads.get(index)
        if slot.state is not SlotState.RESERVED:
            return
        if upload is None or upload.written < slot.object_bytes:
            raise invalid_field("indexes", f"names key {index}, whose bytes are incomplete")
        if upload.digest.digest() != digest:
            raise BatonError(Reason.DATA_LOSS, f"the bytes of key {index} do not match its digest")

    def _abandon(self, frame: pb.Abandon) -> None:
        reservation = self._reservations.get(frame.correlation_id)
        if reservation is None:
            return  # everything was committed, or no slot was reserved
        indexes = list(frame.indexes) or list(reservation.slots)
        self._holding(frame.correlation_id, indexes)
        for index in dict.fromkeys(indexes):
            reservation.uploads.pop(index, None)
            self._store.abandon([reservation.slots.pop(index)])
        self._forget_if_empty(frame.correlation_id)

    def _will_not_come(self, frame: pb.WillNotCome) -> None:
        ids = objects_of(frame, MAX_READ_KEYS)
        self._store.waits.mark_unavailable(ids, self._store.clock())

    def _holding(self, correlation_id: int, indexes: Iterable[int]) -> _Reservation:
        """Return a reservation that has a slot for each of the indexes.

        Raises:
            BatonError: it does not.
        """
        reservation = self._reservations.get(correlation_id)
        for index in indexes:
            if reservation is None or index not in reservation.slots:
                raise BatonError(
                    Reason.NOT_FOUND,
                    f"key {index} of reservation {correlation_id} has no slot in this store",
                    field="index",
                )
        assert reservation is not None  # there was at least one index
        return reservation

    def _forget_if_empty(self, correlation_id: int) -> None:
        reservation = self._reservations[correlation_id]
        if not reservation.slots:
            del self._reservations[correlation_id]
            _end(reservation)


def _end(reservation: _Reservation) -> None:
    if reservation.span is not None:
        reservation.span.end()
