"""Read frames at one peer store, and the leases granted for them."""

from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.keys import pack
from baton.kv.wire.lease import parse_leases
from services.kvstore.peers.transfer import PeerRead, Transfer, TransferOutcome, TransferState

READ_KEYS = 16_384
"""Most keys in one Read."""


class PeerReads:
    """The requests on one stream to a peer. Owned by PeerRequests; no I/O, no clock.

    Every lease is released once, and a read whose objects no read here waits for is cancelled.
    """

    def __init__(self) -> None:
        self._reads: dict[int, PeerRead] = {}
        """Reads that are not fully answered."""
        self._number = 0
        self._out: list[pb.GetRequest] = []
        self._release: pb.Release | None = None
        """The frame of `_out` that releases leases."""

    def closed(self) -> None:
        """Drop everything: the stream is gone, with all leases."""
        self._reads.clear()
        self._out.clear()
        self._release = None

    def frames(self) -> list[pb.GetRequest]:
        """Return what to send now."""
        out, self._out, self._release = self._out, [], None
        return out

    def request(self, transfers: Iterable[Transfer], now: float) -> None:
        """Request objects that reads of this store wait for."""
        groups: dict[tuple[bytes, int, int, int, bool], list[Transfer]] = {}
        for transfer in transfers:
            layout_id, _, group, shard, part = transfer.object_id
            key = (layout_id, group, shard, part, transfer.instant)
            groups.setdefault(key, []).append(transfer)
        for alike in groups.values():
            for at in range(0, len(alike), READ_KEYS):
                self._request(alike[at : at + READ_KEYS], now)

    def cancel(self, transfer: Transfer) -> None:
        """Withdraw a request that the peer has not answered."""
        if transfer.read is not None:
            transfer.read.open -= 1
            self._cancel_if_unneeded(transfer.read)

    def take_ready(self, ready: pb.Ready) -> list[Transfer]:
        """Handle leases; return their transfers, LEASED. Unneeded leases are released.

        Raises:
            BatonError: the frame is invalid.
        """
        read = self._reads.get(ready.correlation_id)
        if read is None:
            return []  # it was cancelled, which ends its leases
        transfers = []
        for leased in parse_leases(ready):
            transfer = self._answered(read, leased.which)
            if transfer is None:
                self._give_back(leased.lease_id)
                continue
            read.leased += 1
            transfer.state, transfer.leased = TransferState.LEASED, leased
            transfers.append(transfer)
        self._end_read(read, done=ready.done)
        return transfers

    def take_missing(self, missing: pb.Missing) -> tuple[list[Transfer], list[Transfer]]:
        """Handle objects that the peer does not have; return unavailable ones, and timed-out ones.

        Raises:
            BatonError: the frame is invalid.
        """
        read = self._reads.get(missing.correlation_id)
        if read is None:
            return [], []
        will_not_come = [self._answered(read, index) for index in missing.will_not_come]
        timed_out = [self._answered(read, index) for index in missing.timed_out]
        self._end_read(read, done=missing.done)
        return [one for one in will_not_come if one], [one for one in timed_out if one]

    def take_error(self, error: pb.CorrelatedError) -> list[Transfer]:
        """Handle a rejected read; return the transfers that it was to answer."""
        read = self._reads.pop(error.correlation_id, None)
        return [one for one in read.transfers if _is_open(one, read)] if read is not None else []

    def release(self, transfer: Transfer) -> None:
        """Release the lease of a transfer that ended; a WRONG object is dropped at the peer."""
        if transfer.read is None or transfer.leased is None:
            return
        if transfer.outcome is TransferOutcome.WRONG:
            bad = pb.ReportBad(lease_ids=[transfer.leased.lease_id])  # which ends the lease
            self._out.append(pb.GetRequest(report_bad=bad))
        else:
            self._give_back(transfer.leased.lease_id)
        transfer.read.leased -= 1
        self._cancel_if_unneeded(transfer.read)

    def _request(self, transfers: Sequence[Transfer], now: float) -> None:
        """Send a Read for objects that differ only in their keys."""
        self._number += 1
        read = PeerRead(self._number, transfers, len(transfers), len(transfers))
        self._reads[self._number] = read
        deadline = now
        for transfer in transfers:
            transfer.read, transfer.state = read, TransferState.REQUESTED
            deadline = max(deadline, *(request.deadline for request in transfer.requests))
        first, wait = transfers[0], Duration()
        if not first.instant:
            wait.FromMilliseconds(max(1, int((deadline - now) * 1000)))
        frame = pb.Read(
            correlation_id=self._number,
            layout_id=first.object_id.layout_id,
            keys=pack([transfer.object_id.key for transfer in transfers]),
            part=first.object_id.message(),
            wait=wait,
        )
        self._out.append(pb.GetRequest(read=frame))

    def _answered(self, read: PeerRead, index: int) -> Transfer | None:
        """Record an answer for one object; return None if no read here waits for it any more."""
        if not 0 <= index < len(read.transfers):
            raise BatonError(
                Reason.INTERNAL, f"the peer's response has key {index}, which is out of range"
            )
        read.unanswered -= 1
        transfer = read.transfers[index]
        if not _is_open(transfer, read):
            return None
        read.open -= 1
        return transfer

    def _end_read(self, read: PeerRead, *, done: bool) -> None:
        if done:
            self._reads.pop(read.number, None)
        else:
            self._cancel_if_unneeded(read)

    def _give_back(self, lease_id: int) -> None:
        if self._release is None:
            self._out.append(pb.GetRequest(release=pb.Release()))
            self._release = self._out[-1].release
        self._release.lease_ids.append(lease_id)

    def _cancel_if_unneeded(self, read: PeerRead) -> None:
        """End a read if no read here waits for its remaining objects."""
        if read.open or read.leased or not read.unanswered:
            return
        if self._reads.pop(read.number, None) is not None:
            cancel = pb.CancelRead(correlation_id=read.number)
            self._out.append(pb.GetRequest(cancel_read=cancel))


def _is_open(transfer: Transfer, read: PeerRead) -> bool:
    """Return whether a read here waits for the answer of this one."""
    return transfer.read is read and transfer.state is TransferState.REQUESTED
