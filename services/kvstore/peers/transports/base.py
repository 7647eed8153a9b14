"""What a way for objects between stores has to do."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.wire.bulk import ReadBulk
from services.kvstore.peers.transfer import Transfer


class PeerTransport(ABC):
    """One way in which the objects that one peer leased come into slots of this store.

    No I/O and no clock: the owner, PeerRequests, sends `frames`, hands in the peer's, and tells the
    time. A transfer that was begun ends exactly once: in what `handle` or `overdue` returns, with
    its outcome set and its slot committed, freed or in quarantine. Those that `closed` ends are not
    returned: the leases that they were begun with are gone.
    """

    @property
    @abstractmethod
    def writer(self) -> Hashable | None:
        """What writes into the slots from outside this process; None: nothing does."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether transfers may begin."""

    @abstractmethod
    def undecided(self, now: float) -> bool:
        """Return whether it is about to be known if the transport is up."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing is awaited of the peer."""

    @abstractmethod
    def opened(self, epoch: str, now: float) -> None:
        """Begin on a new stream to the peer; another epoch than before is another process."""

    @abstractmethod
    def closed(self, now: float) -> None:
        """End all transfers: the stream is gone, and all leases with it."""

    @abstractmethod
    def begin(self, transfers: Sequence[Transfer], now: float) -> None:
        """Ask the peer for leased objects, which have slots."""

    @abstractmethod
    def frames(self, now: float) -> list[pb.GetRequest]:
        """Return what to send now."""

    @abstractmethod
    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> Sequence[Transfer]:
        """Take in a frame of the peer, if it is for this transport; return what it ended."""

    @abstractmethod
    def overdue(self, now: float) -> Sequence[Transfer]:
        """Give up, and return, transfers that took too long: other peers may bring the objects."""
