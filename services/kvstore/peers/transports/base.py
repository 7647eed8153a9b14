"""The interface of a transport between stores."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.wire.bulk import ReadBulk
from services.kvstore.peers.transfer import Transfer


class PeerTransport(ABC):
    """One way to move objects leased by one peer into slots of this store.

    No I/O and no clock: the owner, PeerRequests, sends `frames`, passes in the peer's frames, and
    the time. A begun transfer ends exactly once: in the result of `handle` or `overdue`, with its
    outcome set and its slot committed, freed or in quarantine. Those ended by `closed` are not
    returned: the leases that they were begun with are gone.
    """

    @property
    @abstractmethod
    def writer(self) -> Hashable | None:
        """The external writer to the slots; None: only this process writes."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether transfers may begin."""

    @abstractmethod
    def undecided(self, now: float) -> bool:
        """Return whether it will soon be known if the transport is up."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing is requested from the peer."""

    @abstractmethod
    def opened(self, epoch: str, now: float) -> None:
        """Start on a new stream to the peer; a changed epoch means another process."""

    @abstractmethod
    def closed(self, now: float) -> None:
        """End all transfers: the stream is gone, with all leases."""

    @abstractmethod
    def begin(self, transfers: Sequence[Transfer], now: float) -> None:
        """Request leased objects, which have slots, from the peer."""

    @abstractmethod
    def frames(self, now: float) -> list[pb.GetRequest]:
        """Return what to send now."""

    @abstractmethod
    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> Sequence[Transfer]:
        """Handle a frame of the peer, if it is for this transport; return the ended transfers."""

    @abstractmethod
    def overdue(self, now: float) -> Sequence[Transfer]:
        """Give up, and return, overdue transfers: other peers may deliver the objects."""
