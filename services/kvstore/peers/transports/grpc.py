"""The transport `grpc`: the peer sends an object's bytes in chunks on the stream."""

from collections.abc import Hashable, Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.wire.bulk import ReadBulk
from baton.settings.transports import GRPC
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.transfer import Transfer
from services.kvstore.peers.transports.base import PeerTransport


class GrpcTransport(PeerTransport):
    """Receives chunks of one peer, and hashes them as they arrive. Always up.

    Args:
        in_flight: the transfers of all peers, and their slots.
        stall_seconds: time without an awaited chunk after which other peers may deliver the same
            objects.
    """

    def __init__(self, in_flight: InFlight, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._in_flight = in_flight
        self._receiving: dict[int, Transfer] = {}
        """Transfers by the peer's lease."""
        self._received_at = 0.0
        """When the last chunk arrived, or the first was requested."""
        self._out: list[pb.GetRequest] = []

    @property
    def writer(self) -> Hashable | None:
        return None

    @property
    def is_up(self) -> bool:
        return True

    def undecided(self, now: float) -> bool:  # noqa: ARG002
        return False

    @property
    def idle(self) -> bool:
        return not self._receiving

    def opened(self, epoch: str, now: float) -> None:
        """Do nothing: chunks need no preparation."""

    def closed(self, now: float) -> None:  # noqa: ARG002
        self._in_flight.fail(list(self._receiving.values()))
        self._receiving.clear()
        self._out.clear()

    def begin(self, transfers: Sequence[Transfer], now: float) -> None:
        if not self._receiving:
            self._received_at = now
        leases = {one.leased.lease_id: one for one in transfers if one.leased is not None}
        self._receiving.update(leases)
        self._out.append(pb.GetRequest(fetch=pb.Fetch(lease_ids=leases)))

    def frames(self, now: float) -> list[pb.GetRequest]:  # noqa: ARG002
        out, self._out = self._out, []
        return out

    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> Sequence[Transfer]:
        if not isinstance(response, ReadBulk):
            return ()
        complete, broken = [], []
        for lease_id, offset, data in response.pieces():
            transfer = self._receiving.get(lease_id)
            if transfer is None or transfer.slot is None:
                continue
            self._received_at = now
            if not self._in_flight.write(transfer, offset, data):
                broken.append(transfer)
            elif data.nbytes and transfer.received_bytes < transfer.slot.object_bytes:
                continue
            else:  # no bytes: it is gone at the peer
                complete.append(transfer)
            del self._receiving[lease_id]
        if broken:
            self._in_flight.fail(broken)
        if complete:
            self._in_flight.finish(complete)
        return complete + broken

    def overdue(self, now: float) -> Sequence[Transfer]:
        if not self._receiving or self._received_at + self._stall_seconds > now:
            return ()
        late = list(self._receiving.values())
        self._receiving.clear()
        self._in_flight.failures[GRPC] += 1
        self._in_flight.fail(late)
        return late
