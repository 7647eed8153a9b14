"""What an eviction policy knows of an object, and what an order of eviction is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from baton.kv.objects import ObjectId


class Entry(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """An object as a policy sees it. The fields below the line belong to the policy.

    A struct because there are very many: it is made six times as fast as a dataclass, and the
    garbage collector need not look at it; nothing that it refers to refers back.
    """

    object_id: ObjectId
    slot_bytes: int
    """Bytes taken in its tier."""
    offset: int = 0
    """Where it begins in the data of its tier."""
    tenant: str = ""
    """Charged for it."""
    cost: float = 1.0
    """Relative cost per byte of computing it again; 1 is typical of the tier."""
    partial: bool = False
    """Holds a partial block: evicted before all others."""
    # ---
    held: bool = False
    """The policy holds it."""
    pinned: bool = False
    """In use: not evicted now."""
    uses: int = 0
    counted: int = 0
    """When `uses` last changed, in uses of the whole tier."""
    rank: float = 0.0
    """Least first; comparable between orders that share a count of uses."""
    place: int = 0
    """Number of its place in the order; 0: it has none."""


class Order(ABC):
    """Which of a set of entries is evicted next. `now` counts uses of the tier and never goes back.

    Owned by one group of an EvictionPolicy: entries of one tenant and size.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def add(self, entry: Entry, now: int) -> None:
        """Take in an entry that became readable."""

    @abstractmethod
    def use(self, entry: Entry, now: int) -> None:
        """Count a use."""

    @abstractmethod
    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:
        """Let go of an entry; `evicted`: to make room, so that it may come back."""

    @abstractmethod
    def unpin(self, entry: Entry) -> None:
        """Take an entry back into the order, in its turn, if it was taken out for being pinned."""

    @abstractmethod
    def first(self) -> Entry | None:
        """Return what is evicted next; None where there is nothing, or all of it is pinned.

        An entry that is pinned when its turn comes is taken out of the order until `unpin`: nobody
        looks at it again meanwhile.
        """

    def next_ones(self, count: int, before: float) -> Sequence[Entry]:  # noqa: ARG002
        """Return as `first`, and what follows: at most `count`, with ranks below `before`.

        The rank of the first one may be anything. An order may return fewer than there are.
        """
        entry = self.first()
        return [] if entry is None else [entry]
