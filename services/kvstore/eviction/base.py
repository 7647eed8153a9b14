"""What a policy knows of an object, and what an order of eviction is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from baton.kv.objects import ObjectId


class Entry(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """An object as a policy sees it. What stands below the line is the policy's own.

    There are very many: as a struct one is made six times as fast as a dataclass is, and the
    collector need not look at it; nothing that it refers to refers back.
    """

    object_id: ObjectId
    slot_bytes: int
    """Bytes that it takes in its tier."""
    offset: int = 0
    """Where it lies there, from the beginning of the data."""
    tenant: str = ""
    """Whose share it is counted on."""
    cost: float = 1.0
    """What computing it again takes per byte, compared with the other objects of the tier."""
    partial: bool = False
    """Holds a partial block, which goes first."""
    # ---
    held: bool = False
    """The policy has it."""
    pinned: bool = False
    """It is in use and can not go now."""
    uses: int = 0
    counted: int = 0
    """When `uses` was last changed, in uses of the whole tier."""
    rank: float = 0.0
    """The least goes first; comparable between orders that share a count of uses."""
    in_main: bool = False
    place: int = 0
    """Names its place in the order; 0: it has none."""


class Order(ABC):
    """Which of a set of entries goes next. `now` counts uses of the tier and never goes back."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def add(self, entry: Entry, now: int) -> None:
        """It became readable."""

    @abstractmethod
    def use(self, entry: Entry, now: int) -> None:
        """Somebody asked for it."""

    @abstractmethod
    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:
        """It is gone; `evicted`: to make room, so that it may come back."""

    @abstractmethod
    def first(self, now: int) -> Entry | None:
        """What goes next; None where there is nothing or all of it is pinned.

        One that is pinned when its turn comes counts as used.
        """

    def next_ones(self, now: int, count: int, before: float) -> Sequence[Entry]:  # noqa: ARG002
        """As `first`, and what goes after it: at most `count`, with ranks below `before`.

        The first one's rank may be anything. An order may answer fewer than there are.
        """
        entry = self.first(now)
        return [] if entry is None else [entry]
