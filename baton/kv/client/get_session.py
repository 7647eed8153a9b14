"""Reads from a store over one Get stream: reads, leases, and reports of reads."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import GetStream
from baton.kv.keys import pack
from baton.kv.objects import MAX_READ_KEYS, ObjectId
from baton.kv.wire.bulk import ReadBulk

READ_REPORT_SECONDS = 0.02
READ_REPORT_OBJECTS = 4096
"""Reads through the index are reported after this interval, or at this number of objects."""


class ReadListener(Protocol):
    """Receives the responses to a read."""

    def on_ready(self, ready: pb.Ready) -> None: ...

    def on_piece(self, lease_id: int, offset: int, data: memoryview) -> None: ...

    def on_done(self, read_id: int) -> None: ...

    def on_broken(self) -> None: ...


class GetSession:
    """The reads and leases of one connection. Owned by it, on the asyncio loop.

    Args:
        stream: the open Get stream; `on_response` receives its messages.
        mapped: whether objects are copied from shared memory instead of received as bytes.
    """

    def __init__(self, stream: GetStream, *, mapped: bool) -> None:
        self._stream = stream
        self._mapped = mapped
        self._closed = False
        self.leases = 0
        """Number of objects that the store keeps leased for this client now."""
        self._last_read_id = 0
        self._listeners: dict[int, ReadListener] = {}
        """Listeners by read."""
        self._lease_listeners: dict[int, ReadListener] = {}
        """Listeners of objects whose bytes come in chunks, by lease."""
        self._released: list[int] = []
        """Leases to release in the loop's next turn, in one frame: a consumer that never waits ends
        many batches in one turn.
        """
        self._unreported: dict[ObjectId, list[bytes]] = {}
        """Keys that were read without a lease and not yet reported, by an id with an empty key."""
        self._unreported_count = 0
        self._report_timer: asyncio.TimerHandle | None = None

    def read(self, read: pb.Read, listener: ReadListener) -> int:
        """Send a read, and route its responses to `listener` until `cancel_read`; return its id."""
        self._last_read_id += 1
        read.correlation_id = self._last_read_id
        self._listeners[self._last_read_id] = listener
        self._stream.send(pb.GetRequest(read=read))
        return self._last_read_id

    def replace_sources(self, read_id: int, sources: Sequence[pb.KvSource]) -> None:
        """Replace the other stores in which the store looks for missing objects of a read."""
        frame = pb.ReplaceSources(correlation_id=read_id, sources=sources)
        self._stream.send(pb.GetRequest(replace_sources=frame))

    def cancel_read(self, read_id: int) -> None:
        """End a read; its listener receives nothing more."""
        self._listeners.pop(read_id, None)
        self._stream.send(pb.GetRequest(cancel_read=pb.CancelRead(correlation_id=read_id)))

    def release(self, good: Sequence[int], bad: Sequence[int] = ()) -> None:
        """Release leases, and report those whose objects were corrupt."""
        if self._closed:
            return
        self.leases -= len(good) + len(bad)
        for lease_id in (*good, *bad):
            self._lease_listeners.pop(lease_id, None)
        if good:
            if not self._released:
                asyncio.get_running_loop().call_soon(self._send_released)
            self._released.extend(good)
        if bad:
            self._stream.send(pb.GetRequest(report_bad=pb.ReportBad(lease_ids=bad)))

    def _send_released(self) -> None:
        released, self._released = self._released, []
        self._stream.send(pb.GetRequest(release=pb.Release(lease_ids=released)))

    def record_reads(self, kind: ObjectId, keys: Sequence[bytes]) -> None:
        """Record reads without a lease; they are reported to the store in batches.

        Args:
            kind: the objects' id with an empty key.
            keys: their keys.
        """
        if not self._unreported:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(READ_REPORT_SECONDS, self.report_reads)
        self._unreported.setdefault(kind, []).extend(keys)
        self._unreported_count += len(keys)
        if self._unreported_count >= READ_REPORT_OBJECTS:
            self.report_reads()

    def report_reads(self) -> None:
        """Report to the store the reads that are not yet reported."""
        unreported, self._unreported = self._unreported, {}
        self._unreported_count = 0
        if self._report_timer is not None:
            self._report_timer.cancel()
        for kind, keys in unreported.items():
            for at in range(0, len(keys), MAX_READ_KEYS):
                frame = pb.ReportRead(
                    layout_id=kind.layout_id,
                    keys=pack(keys[at : at + MAX_READ_KEYS]),
                    part=kind.message(),
                )
                self._stream.send(pb.GetRequest(report_read=frame))

    def close(self) -> None:
        """Drop all leases, and tell every listener that nothing more arrives."""
        self._closed = True
        self.leases = 0
        for listener in {*self._listeners.values(), *self._lease_listeners.values()}:
            listener.on_broken()

    def on_response(self, frame: pb.GetResponse | ReadBulk) -> None:
        """Route a message of the stream to its listener."""
        if isinstance(frame, ReadBulk):
            for lease_id, offset, data in frame.pieces():
                owner = self._lease_listeners.get(lease_id)
                if owner is not None:
                    owner.on_piece(lease_id, offset, data)
            return
        kind = frame.WhichOneof("frame")
        if kind == "ready":
            listener = self._listeners.get(frame.ready.correlation_id)
            if listener is not None:  # else it was cancelled, which released these leases
                lease_ids = frame.ready.lease_ids
                self.leases += len(lease_ids)
                if not self._mapped:
                    self._lease_listeners.update(dict.fromkeys(lease_ids, listener))
                listener.on_ready(frame.ready)
        # A rejected read receives no further responses.
        if kind == "error" or (kind in ("ready", "missing") and getattr(frame, kind).done):
            read_id = getattr(frame, kind).correlation_id
            listener = self._listeners.pop(read_id, None)
            if listener is not None:
                listener.on_done(read_id)
