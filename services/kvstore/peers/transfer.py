"""One object on its way from a peer store into this one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from xxhash import xxh3_128

from baton.kv.objects import ObjectId
from baton.kv.wire.lease import LeasedObject
from services.kvstore.memory.slot import Slot
from services.kvstore.reads.read_request import ReadRequest


class TransferState(Enum):
    """The state of a transfer."""

    DUE = "due"
    """To be requested from the peer with the next frames."""
    REQUESTED = "requested"
    """In a Read at the peer, which has not answered for it."""
    LEASED = "leased"
    """Leased by the peer to this store; it waits for space in the window."""
    RECEIVING = "receiving"
    """It has a slot, and a transport receives its bytes."""
    RETRYING = "retrying"
    """To be requested again a little later."""
    UNAVAILABLE = "unavailable"
    """The peer does not have it, or too many transfers failed."""
    CANCELLED = "cancelled"
    """No read waits for it any more, and nothing is in flight."""


class TransferOutcome(Enum):
    """How the transfer of a leased object ended."""

    KEPT = "kept"
    """Committed: it is readable here."""
    WRONG = "wrong"
    """The bytes are not the object's, or the peer reported it gone."""
    FAILED = "failed"
    """They did not arrive."""
    REFUSED = "refused"
    """Not requested: there is no space, another peer transfers them, or no read waits."""


@dataclass(eq=False, slots=True)
class Transfer:
    """One object that reads wait for, at one peer that may have it.

    DUE ─▶ REQUESTED ─ Ready ─▶ LEASED ─ room ─▶ RECEIVING ─▶ KEPT, else DUE or RETRYING again

    Owned by the peer's PeerRequests; while it is RECEIVING, a transport and InFlight refer to it.
    """

    object_id: ObjectId
    instant: bool
    """Requested without a wait, for reads without one."""
    requests: dict[ReadRequest, None] = field(default_factory=dict)
    """The reads of this store that wait for it."""
    state: TransferState = TransferState.DUE
    failures: int = 0
    read: "PeerRead | None" = None
    """The latest Read that requested it."""
    leased: LeasedObject | None = None
    """What the peer leased; set from LEASED on."""
    slot: Slot | None = None
    """Its slot; set while RECEIVING."""
    hash: xxh3_128 | None = None
    """Hash of the bytes received in chunks."""
    received_bytes: int = 0
    outcome: TransferOutcome = TransferOutcome.FAILED
    """Set by the transport when it ends."""


@dataclass(eq=False, slots=True)
class PeerRead:
    """One Read frame at the peer. Owned by PeerRequests."""

    number: int
    transfers: Sequence[Transfer]
    """By index of the frame's keys."""
    open: int
    """Unanswered transfers that reads still wait for."""
    unanswered: int
    leased: int = 0
    """Leases that are not released: cancelling the read would end them."""
