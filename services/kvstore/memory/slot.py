"""A slot's life, and what may be held on it.

reserve ─▶ RESERVED ─ commit ─▶ COMMITTED ─ evict ─▶ FREE
              │ lapse               │ drop while leased
              ▼                     ▼
         QUARANTINED ─ dead ─▶ FREE ◀─ last release ─ PENDING_FREE
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from services.kvstore.eviction.base import Entry


class State(Enum):
    RESERVED = "reserved"
    """A writer has it."""
    COMMITTED = "committed"
    """Readable under its object's id."""
    PENDING_FREE = "pending free"
    """No longer readable; readers that had leased it before still hold it."""
    QUARANTINED = "quarantined"
    """Its writer let it lapse and may write to it still."""
    FREE = "free"
    """Given back; the place may belong to another Slot by now."""


class Slot(Entry, eq=False, gc=False, kw_only=True):
    """A place in the arena, from the moment it is taken until it is free. Never used again."""

    object_bytes: int
    generation: int
    writer: Hashable | None
    """Who may write to it from outside; None: only the store itself does."""
    deadline: float
    """RESERVED: when it lapses. COMMITTED and partial: when it is dropped."""
    state: State = State.RESERVED
    digest: bytes = b""
    leases: int = 0
    index_entry: int = -1
    """Where readers find it in the arena's index; below 0: nowhere."""


@dataclass(eq=False, slots=True)
class Lease:
    """A reader's hold on a committed slot: it is neither evicted nor given to another writer."""

    slot: Slot
    deadline: float
    live: bool = True


class Refusal(Enum):
    """Why there is no slot or lease."""

    PRESENT = "present"
    """The object is committed already."""
    EXHAUSTED = "exhausted"
    """The cap on leased and reserved bytes, or the arena, is full."""
    ABSENT = "absent"
    """No such object is committed."""


@dataclass(frozen=True, slots=True)
class TableStats:
    """What a table holds now and has done since it was made."""

    capacity_bytes: int
    committed_bytes: int
    objects: int
    leases: int
    reservations: int
    quarantined: int
    pinned_bytes: int
    bad_objects: int
    evictions: int
