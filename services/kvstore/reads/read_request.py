"""One reader's request, and its progress."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from baton.kv.objects import ObjectId
from services.kvstore.memory.slot import Lease


class ReadSource(NamedTuple):
    """A peer store that holds, or may come to hold, requested objects."""

    store_id: str
    address: str


@dataclass(slots=True)
class ReadResult:
    """What became known about a request since the last result, by index of its keys."""

    ready: list[tuple[int, Lease]] = field(default_factory=list)
    will_not_come: list[int] = field(default_factory=list)
    timed_out: list[int] = field(default_factory=list)
    done: bool = False
    """Every object has been reported: this is the last result."""


class Reader(Protocol):
    """The stream that a request came on."""

    def deliver(self, request: "ReadRequest", result: ReadResult) -> None:
        """Deliver a result. Its leases belong to the request until they are released."""

    def lease_expired(self, request: "ReadRequest", lease: Lease) -> None:
        """Remove a lease that expired."""


@dataclass(eq=False, slots=True)
class ReadRequest:
    """Objects requested under one correlation id. Owned by its reader; WaitTable answers it.

    Bounded by the keys of one Read, and by the table's window of leases.
    """

    reader: Reader
    correlation_id: int
    object_ids: list[ObjectId]
    deadline: float
    instant: bool
    """Only what is available now, here or at sources; the deadline then bounds fetching."""
    grace_seconds: float = 0.0
    """Each leased object moves the deadline to at least this long from then, ..."""
    last_deadline: float = 0.0
    """... but not beyond this time."""
    sources: frozenset[ReadSource] = frozenset()
    local: bool = True
    """Whether writers of this store may write what is missing."""
    tenant: str = ""
    """The tenant charged for objects that are fetched for it."""
    waiting: set[int] = field(default_factory=set)
    """Indexes whose object is not here."""
    ready: deque[int] = field(default_factory=deque)
    """Indexes whose object is here, to be leased as soon as there is capacity."""
    unavailable_at: dict[int, set[ReadSource]] = field(default_factory=dict)
    """By index, sources that do not have an object and will not get it."""
    leases: set[Lease] = field(default_factory=set)
    leased_bytes: int = 0
    unreported: int = 0
    """Indexes without a result yet."""
    result: ReadResult = field(default_factory=ReadResult)
    """The next result to deliver."""

    def set_sources(self, sources: Iterable[ReadSource], own_store_id: str) -> None:
        """Replace the sources. If there are none, or this store is one, local writers count too."""
        every = set(sources)
        self.sources = frozenset(s for s in every if s.store_id != own_store_id)
        self.local = len(self.sources) < len(every) or not every
        self.unavailable_at.clear()

    def extend(self, now: float) -> None:
        """Move the deadline after an object was leased."""
        extended = min(now + self.grace_seconds, self.last_deadline)
        self.deadline = max(self.deadline, extended)

    def unavailable_at_sources(self, index: int) -> bool:
        """Return whether no source has an object, or will get it."""
        return self.sources <= self.unavailable_at.get(index, frozenset())
