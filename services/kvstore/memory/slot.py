"""A slot, its states, and the leases on it.

reserve ─▶ RESERVED ─ commit ─▶ COMMITTED ─ evict ─▶ FREE
              │ expire              │ drop while leased
              ▼                     ▼
         QUARANTINED ─ dead ─▶ FREE ◀─ last release ─ PENDING_FREE
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from services.kvstore.eviction.base import Entry
from services.kvstore.eviction.cut_tracker import ChainLink


class SlotState(Enum):
    """The state of a slot."""

    RESERVED = "reserved"
    """A writer may write to it."""
    COMMITTED = "committed"
    """Readable under its object's id."""
    PENDING_FREE = "pending free"
    """No longer readable, but still leased by earlier readers."""
    QUARANTINED = "quarantined"
    """Its reservation expired, but its writer may still write to it."""
    FREE = "free"
    """Freed; the place may belong to another Slot by now."""


class Slot(Entry, eq=False, gc=False, kw_only=True):
    """A place in the arena from the moment it is reserved until it is freed; then never used again.

    Owned by the object table.
    """

    object_bytes: int
    generation: int
    writer: Hashable | None
    """The process that may write to it; None: only the store itself writes."""
    deadline: float
    """RESERVED: when it expires. COMMITTED and partial: when it is evicted."""
    state: SlotState = SlotState.RESERVED
    digest: bytes = b""
    leases: int = 0
    index_entry: int = -1
    """Its entry in the arena's index; below 0: none."""
    link: ChainLink | None = None
    """Where its block is in its chain; None: not known, or its layout has no groups."""


@dataclass(eq=False, slots=True)
class Lease:
    """A reader's hold on a committed slot, which is neither evicted nor reserved meanwhile."""

    slot: Slot
    deadline: float
    live: bool = True


class SlotRefusal(Enum):
    """Why a slot or a lease was not granted."""

    PRESENT = "present"
    """The object is committed already: there is nothing to write."""
    EXHAUSTED = "exhausted"
    """The cap on leased and reserved bytes, or the arena, is full."""
    ABSENT = "absent"
    """No such object is committed."""


@dataclass(frozen=True, slots=True)
class TableStats:
    """The current contents of a table, and its counters since it was made."""

    capacity_bytes: int
    committed_bytes: int
    objects: int
    leases: int
    reservations: int
    quarantined: int
    pinned_bytes: int
    bad_objects: int
    evictions: int
