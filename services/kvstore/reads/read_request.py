"""One reader's question and how far it is answered."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from baton.kv.objects import ObjectId
from services.kvstore.memory.slot import Lease


class Source(NamedTuple):
    """A peer store that holds, or may come to hold, what a request asks for."""

    store_id: str
    address: str


@dataclass(slots=True)
class Answer:
    """What became known about a request since the last answer; indexes of its keys."""

    ready: list[tuple[int, Lease]] = field(default_factory=list)
    will_not_come: list[int] = field(default_factory=list)
    timed_out: list[int] = field(default_factory=list)
    done: bool = False
    """Everything was answered: nothing more comes for this request."""


class Reader(Protocol):
    """The stream that a request came on."""

    def answer(self, request: "ReadRequest", answer: Answer) -> None:
        """Pass an answer on. Leases in it belong to the request until they are released."""

    def lease_expired(self, request: "ReadRequest", lease: Lease) -> None:
        """A lease ran out."""


@dataclass(eq=False, slots=True)
class ReadRequest:
    """Objects asked for under one correlation id. Answered when `open` is 0."""

    reader: Reader
    correlation_id: int
    object_ids: list[ObjectId]
    deadline: float
    instant: bool
    """Wants only what is there now, here or at the sources; the deadline then bounds fetching."""
    sources: frozenset[Source] = frozenset()
    local: bool = True
    """Writers of this store may come to write what is missing."""
    tenant: str = ""
    """On whose share what is brought for it is counted."""
    waiting: set[int] = field(default_factory=set)
    """Indexes whose object is not here."""
    ready: deque[int] = field(default_factory=deque)
    """Indexes whose object is here, to be leased when there is room."""
    unavailable_at: dict[int, set[Source]] = field(default_factory=dict)
    """Which sources said that they will not have an object."""
    leases: set[Lease] = field(default_factory=set)
    leased_bytes: int = 0
    open: int = 0
    """Indexes not answered yet."""
    pending: Answer = field(default_factory=Answer)

    def set_sources(self, sources: Iterable[Source], own_store_id: str) -> None:
        """Take a list of sources. Empty, or with this store in it: local writers count too."""
        every = set(sources)
        self.sources = frozenset(s for s in every if s.store_id != own_store_id)
        self.local = len(self.sources) < len(every) or not every
        self.unavailable_at.clear()

    def is_unavailable(self, index: int) -> bool:
        return self.sources <= self.unavailable_at.get(index, frozenset())
