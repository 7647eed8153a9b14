"""Transfers with a slot in this store's arena."""

from collections.abc import Hashable, Sequence
from itertools import compress

from baton.kv.digest import object_digest, start_digest
from baton.kv.objects import ObjectId
from baton.settings.transports import GRPC, NIXL
from services.kvstore.memory.slot import Slot, SlotState
from services.kvstore.peers.transfer import Transfer, TransferOutcome, TransferState
from services.kvstore.store import PEER, Store


class InFlight:
    """The transfers in flight from all peers: each object once, for any number of reads.

    Owned by PeerPool, on the event loop. Bounded by a window of bytes.

    Args:
        store: receives the objects.
        window_bytes: most bytes in flight; at least one object.
        verify: whether received bytes are checked against their digests.
    """

    def __init__(self, store: Store, window_bytes: int, *, verify: bool = True) -> None:
        self._store = store
        self.window_bytes = window_bytes
        self.verify = verify
        self.failures = store.peer_failures
        self._transfers: dict[ObjectId, Transfer] = {}
        self._bytes = 0

    def __contains__(self, object_id: ObjectId) -> bool:
        return object_id in self._transfers

    def __len__(self) -> int:
        return len(self._transfers)

    @property
    def room_bytes(self) -> int:
        """Bytes that may still be put in flight; above 0 if nothing is."""
        return max(self.window_bytes - self._bytes, 0 if self._transfers else 1)

    def begin(
        self, transfers: Sequence[Transfer], object_bytes: int, tenant: str, writer: Hashable | None
    ) -> tuple[list[Transfer], list[Transfer]]:
        """Reserve slots for leased objects not in flight; return those begun and those rejected.

        Args:
            transfers: of different objects.
            object_bytes: the length of each.
            tenant: charged for them.
            writer: identifies the external writer to the arena; None: this process writes.
        """
        begun, refused = [], []
        ids = [transfer.object_id for transfer in transfers]
        slots = self._store.reserve(ids, object_bytes, tenant=tenant, writer=writer)
        for transfer, slot in zip(transfers, slots, strict=True):
            if not isinstance(slot, Slot):
                transfer.outcome = TransferOutcome.REFUSED
                refused.append(transfer)
                continue
            transfer.slot, transfer.state = slot, TransferState.RECEIVING
            transfer.hash, transfer.received_bytes = None, 0
            self._transfers[transfer.object_id] = transfer
            self._bytes += slot.slot_bytes
            begun.append(transfer)
        return begun, refused

    def offset(self, transfer: Transfer) -> int:
        """Return where an object goes in the arena's file."""
        return self._store.arena.file_offset(_slot(transfer))

    def write(self, transfer: Transfer, offset: int, data: memoryview) -> bool:
        """Write the next bytes; return False if they do not fit, or the slot expired."""
        slot, at = _slot(transfer), transfer.received_bytes
        end = at + data.nbytes
        if slot.state is not SlotState.RESERVED or offset != at or end > slot.object_bytes:
            return False
        self._store.arena.view(slot)[at:end] = data
        if transfer.hash is None:
            transfer.hash = start_digest(slot.object_id, slot.object_bytes)
        transfer.hash.update(data)
        transfer.received_bytes = end
        self._store.moved_bytes[PEER, GRPC] += data.nbytes
        return True

    def finish(self, transfers: Sequence[Transfer]) -> None:
        """End transfers without further chunks: WRONG unless all bytes are right."""
        right = []
        for transfer in transfers:
            slot, found = _slot(transfer), transfer.hash
            whole = found is not None and transfer.received_bytes == slot.object_bytes
            if whole and self.verify and found is not None:
                whole = found.digest() == _digest(transfer)
            right.append(whole)
        self._end(transfers, right)

    def check(self, transfers: Sequence[Transfer]) -> list[bool]:
        """Return whether objects written by a peer are right. Slow; runs on any thread."""
        right = []
        for transfer in transfers:
            layout_id, key, group, shard, part = transfer.object_id
            view = self._store.arena.view(_slot(transfer))
            digest = object_digest(key, layout_id, group, shard, part, view)
            right.append(digest == _digest(transfer))
        return right

    def finish_written(self, transfers: Sequence[Transfer], right: Sequence[bool]) -> None:
        """End transfers written by a peer: WRONG unless their bytes were found right."""
        arrived = compress(transfers, right)
        self._store.moved_bytes[PEER, NIXL] += sum(_slot(one).object_bytes for one in arrived)
        self._end(transfers, right)

    def fail(self, transfers: Sequence[Transfer]) -> None:
        """End transfers that will not arrive, and that are no longer written to."""
        self._forget(transfers, TransferOutcome.FAILED)
        self._store.abandon([_slot(transfer) for transfer in transfers])

    def quarantine(self, transfers: Sequence[Transfer]) -> list[Slot]:
        """End transfers that the peer may still write to; return their slots, for `release`."""
        self._forget(transfers, TransferOutcome.FAILED)
        slots = [_slot(transfer) for transfer in transfers]
        self._store.expire_slots(slots)
        return slots

    def release(self, slots: Sequence[Slot]) -> None:
        """Free slots in quarantine: the peer no longer writes to them."""
        self._store.abandon(slots)

    def _end(self, transfers: Sequence[Transfer], right: Sequence[bool]) -> None:
        """Commit those that are right, and free the slots of the others."""
        self._forget(transfers, TransferOutcome.WRONG)
        kept, others = [], []
        for transfer, is_right in zip(transfers, right, strict=True):
            if not is_right:
                others.append(_slot(transfer))
            elif _slot(transfer).state is not SlotState.RESERVED:  # expired meanwhile
                transfer.outcome = TransferOutcome.FAILED
                others.append(_slot(transfer))
            else:
                transfer.outcome = TransferOutcome.KEPT
                kept.append(transfer)
        self._store.commit([_slot(one) for one in kept], [_digest(one) for one in kept])
        self._store.abandon(others)

    def _forget(self, transfers: Sequence[Transfer], outcome: TransferOutcome) -> None:
        for transfer in transfers:
            transfer.outcome = outcome
            del self._transfers[transfer.object_id]
            self._bytes -= _slot(transfer).slot_bytes


def _slot(transfer: Transfer) -> Slot:
    assert transfer.slot is not None  # it is in flight
    return transfer.slot


def _digest(transfer: Transfer) -> bytes:
    assert transfer.leased is not None  # it is in flight
    return transfer.leased.digest
