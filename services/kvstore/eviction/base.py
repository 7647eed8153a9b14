"""An eviction policy's view of an object, and the interface of an eviction order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from baton.kv.objects import ObjectId


class Entry(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """An object as seen by a policy. The fields below the line belong to the policy.

    A struct because there are very many: creation is six times as fast as a dataclass's, and the
    garbage collector can skip it; nothing that it refers to refers back.
    """

    object_id: ObjectId
    slot_bytes: int
    """Bytes occupied in its tier."""
    offset: int = 0
    """Its offset in the data of its tier."""
    tenant: str = ""
    """The tenant charged for it."""
    cost: float = 1.0
    """Relative cost per byte of recomputing it; 1 is typical of the tier."""
    partial: bool = False
    """Whether it holds a partial block: evicted before all others."""
    unneeded: bool = False
    """Whether it served cuts and serves none now: evicted before all others, too. Set by the
    policy."""
    # ---
    held: bool = False
    """Whether the policy holds it."""
    pinned: bool = False
    """Whether it is in use and cannot be evicted now."""
    uses: int = 0
    counted: int = 0
    """When `uses` last changed, in uses of the whole tier."""
    rank: float = 0.0
    """Lowest first; comparable between orders that share a count of uses."""
    place: int = 0
    """Number of its place in the order; 0: none."""


class Order(ABC):
    """Which of a set of entries is evicted next. `now` counts uses of the tier and never goes back.

    Owned by one group of an EvictionPolicy: entries of one tenant and size.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def add(self, entry: Entry, now: int) -> None:
        """Add an entry that became readable."""

    @abstractmethod
    def use(self, entry: Entry, now: int) -> None:
        """Count a use."""

    @abstractmethod
    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:
        """Remove an entry; `evicted`: to free space, so that it may come back."""

    @abstractmethod
    def unpin(self, entry: Entry) -> None:
        """Return an entry to its place in the order, if it was removed for being pinned."""

    @abstractmethod
    def first(self) -> Entry | None:
        """Return what is evicted next; None if there is nothing, or everything is pinned.

        An entry that is pinned when its turn comes is removed from the order until `unpin`, so that
        it is not visited again meanwhile.
        """

    def next_ones(self, count: int, before: float) -> Sequence[Entry]:  # noqa: ARG002
        """Return `first`, and what follows: at most `count`, with ranks below `before`.

        The first one may have any rank. An order may return fewer than there are.
        """
        entry = self.first()
        return [] if entry is None else [entry]
