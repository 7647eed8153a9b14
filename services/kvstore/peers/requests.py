"""What reads of this store request from one peer, and its progress."""

from collections import deque
from collections.abc import Iterable, Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import ObjectId
from baton.kv.wire.bulk import ReadBulk
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.reads import PeerReads
from services.kvstore.peers.transfer import Transfer, TransferOutcome, TransferState
from services.kvstore.peers.transports.base import PeerTransport
from services.kvstore.reads.read_request import ReadRequest, ReadSource
from services.kvstore.reads.wait_table import WaitTable

RETRY_SECONDS = 0.1
"""Pause after an object found no space here, or the peer rejected the request."""
MAX_FAILURES = 3
"""Failed transfers of one object after which the peer counts as not having it."""


class PeerRequests:
    """The transfers of one peer. Owned by its connection, on the event loop. No I/O, no clock.

    An object that reads wait for is requested once, for any number of reads, separately with and
    without a wait. Leased objects are transferred by the first transport that is up, unless another
    peer already transfers them, and committed here, which answers the reads. When the stream breaks
    everything is requested again on the next one; until then reads are unchanged. Bounded by the
    reads of this store.

    Args:
        source: the peer.
        in_flight: the transfers in flight from all peers.
        waits: notified of what the peer does not have.
        transports: transports for objects, best first; the last one is always up.
    """

    def __init__(
        self,
        source: ReadSource,
        in_flight: InFlight,
        waits: WaitTable,
        transports: Sequence[PeerTransport],
    ) -> None:
        self.source = source
        self._in_flight = in_flight
        self._waits = waits
        self._transports = transports
        self._reads = PeerReads()
        self._transfers: tuple[dict[ObjectId, Transfer], ...] = ({}, {})
        """With a wait, and without: transfers that reads wait for, or that are in flight."""
        self._due: dict[Transfer, None] = {}
        self._leased: deque[Transfer] = deque()
        self._retries: deque[tuple[float, Transfer]] = deque()

    @property
    def idle(self) -> bool:
        """Whether nothing is requested from the peer."""
        return not any(self._transfers) and all(one.idle for one in self._transports)

    def fetch(self, request: ReadRequest, object_id: ObjectId) -> None:
        """Request an object that a read waits for."""
        transfers = self._transfers[request.instant]
        transfer = transfers.get(object_id)
        if transfer is None:
            transfer = transfers[object_id] = Transfer(object_id, request.instant)
            self._due[transfer] = None
        elif transfer.state in (TransferState.UNAVAILABLE, TransferState.RETRYING):
            self._make_due(transfer)
        transfer.requests[request] = None

    def cancel(self, request: ReadRequest, object_id: ObjectId) -> None:
        """End a read's interest in an object; no error if there is none."""
        transfers = self._transfers[request.instant]
        transfer = transfers.get(object_id)
        if transfer is None or request not in transfer.requests:
            return
        del transfer.requests[request]
        state = transfer.state
        if transfer.requests or state in (TransferState.LEASED, TransferState.RECEIVING):
            return
        del transfers[object_id]
        self._due.pop(transfer, None)
        transfer.state = TransferState.CANCELLED
        if state is TransferState.REQUESTED:
            self._reads.cancel(transfer)

    def opened(self, epoch: str, now: float) -> None:
        """Start on a new stream to the peer.

        Args:
            epoch: changes when the peer restarts.
            now: the time.
        """
        for transport in self._transports:
            transport.opened(epoch, now)

    def closed(self, now: float) -> None:
        """Start over: the stream is gone, or could not be opened.

        For reads without a wait, which do not wait for the next stream, the peer has nothing.
        """
        self._reads.closed()
        self._leased.clear()
        self._retries.clear()
        for transport in self._transports:
            transport.closed(now)
        self._due.clear()
        for transfers in self._transfers:
            for object_id, old in list(transfers.items()):
                del transfers[object_id]
                if old.requests:  # the old one may still be in flight
                    new = transfers[object_id] = Transfer(object_id, old.instant, old.requests)
                    self._due[new] = None
        for transfer in list(self._transfers[True].values()):
            self._mark_unavailable(transfer, now)

    def frames(self, now: float) -> list[pb.GetRequest]:
        """Return what to send now."""
        while self._retries and self._retries[0][0] <= now:
            transfer = self._retries.popleft()[1]
            if transfer.state is TransferState.RETRYING:
                self._make_due(transfer)
        for transport in self._transports:
            self.end(transport.overdue(now), now)
        if self._leased:
            self._begin_leased(now)
        if self._due:
            due, self._due = self._due, {}
            self._reads.request(due, now)
        out = self._reads.frames()
        for transport in self._transports:
            out += transport.frames(now)
        return out

    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> None:
        """Handle one frame of the peer; send `frames` afterwards.

        Raises:
            BatonError: the frame is invalid.
        """
        for transport in self._transports:
            self.end(transport.handle(response, now), now)
        if isinstance(response, ReadBulk):
            return
        kind = response.WhichOneof("frame")
        if kind == "ready":
            self._leased += self._reads.take_ready(response.ready)
        elif kind == "missing":
            will_not_come, timed_out = self._reads.take_missing(response.missing)
            for transfer in will_not_come:
                self._mark_unavailable(transfer, now)
            for transfer in timed_out:
                if transfer.instant:
                    self._mark_unavailable(transfer, now)
                else:
                    self._retry(transfer, now)  # reads that came later may wait longer
        elif kind == "error":
            for transfer in self._reads.take_error(response.error):
                self._retry(transfer, now)

    def end(self, transfers: Iterable[Transfer], now: float) -> None:
        """Release the leases of transfers that ended, and request failed ones again."""
        for transfer in transfers:
            current = self._transfers[transfer.instant]
            if current.get(transfer.object_id) is not transfer:
                continue  # the stream that it was leased on is gone
            self._reads.release(transfer)
            if not transfer.requests:
                transfer.state = TransferState.CANCELLED
                del current[transfer.object_id]
            elif transfer.outcome in (TransferOutcome.WRONG, TransferOutcome.FAILED):
                transfer.failures += 1
                if transfer.failures < MAX_FAILURES:
                    self._make_due(transfer)
                else:
                    self._mark_unavailable(transfer, now)
            else:
                self._retry(transfer, now)

    def _begin_leased(self, now: float) -> None:
        """Begin as many leased transfers as fit in the window."""
        transport = next(one for one in self._transports if one.is_up or one.undecided(now))
        if not transport.is_up:
            return
        chosen: set[ObjectId] = set()
        groups: dict[tuple[str, int], list[Transfer]] = {}
        begun: list[Transfer] = []
        ended: list[Transfer] = []
        room = self._in_flight.room_bytes
        while self._leased and room > 0:
            transfer = self._leased.popleft()
            object_id, leased = transfer.object_id, transfer.leased
            is_brought = object_id in self._in_flight or object_id in chosen
            if leased is None or is_brought or not transfer.requests:
                transfer.outcome = TransferOutcome.REFUSED
                ended.append(transfer)
                continue
            chosen.add(object_id)
            room -= leased.object_bytes
            tenant = next(iter(transfer.requests)).tenant
            groups.setdefault((tenant, leased.object_bytes), []).append(transfer)
        for (tenant, size), group in groups.items():
            accepted, refused = self._in_flight.begin(group, size, tenant, transport.writer)
            begun += accepted
            ended += refused
        if begun:
            transport.begin(begun, now)
        self.end(ended, now)

    def _make_due(self, transfer: Transfer) -> None:
        transfer.state = TransferState.DUE
        self._due[transfer] = None

    def _retry(self, transfer: Transfer, now: float) -> None:
        transfer.state = TransferState.RETRYING
        self._retries.append((now + RETRY_SECONDS, transfer))

    def _mark_unavailable(self, transfer: Transfer, now: float) -> None:
        """Tell the reads that the peer does not have an object; after `closed` it stays due."""
        if transfer.state is not TransferState.DUE:
            transfer.state = TransferState.UNAVAILABLE
        for request in list(transfer.requests):
            self._waits.mark_unavailable_at(request, transfer.object_id, self.source, now)
