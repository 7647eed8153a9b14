"""What the cluster says of its workers and stores, in plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """What an instance does, of those that placements choose from."""

    PREFILL = "prefill"
    """Prefills for decode workers."""
    DECODE = "decode"
    COMBINED = "combined"
    """Prefills and decodes."""
    KVSTORE = "kvstore"

    @property
    def can_prefill(self) -> bool:
        """Whether it prefills for decode workers."""
        return self in (Role.PREFILL, Role.COMBINED)

    @property
    def can_decode(self) -> bool:
        return self in (Role.DECODE, Role.COMBINED)

    @property
    def is_worker(self) -> bool:
        return self is not Role.KVSTORE


@dataclass(frozen=True, slots=True)
class InstanceState:
    """A live worker or store, as it is registered. Fields after `address` are a worker's."""

    id: str
    role: Role
    incarnation: str = ""
    """Tells a restarted process from the one before."""
    address: str = ""
    """Of its gRPC server, `host:port`."""
    model: str = ""
    layout_id: bytes = b""
    store_id: str = ""
    """The store that it puts to and gets from; empty: none."""
    tokenizer_digest: bytes = b""
    adapters: frozenset[tuple[str, bytes]] = frozenset()
    """Name and digest of each adapter that it serves."""
    draining: bool = False


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """How a model's KV is cut into blocks in one layout."""

    model: str
    layout_id: bytes
    block_tokens: int
    block_bytes: int


class LoadReport(NamedTuple):
    """How busy a worker is, and how fast it has been of late."""

    worker_id: str
    incarnation: str = ""
    running: int = 0
    """Sequences in the running batch."""
    waiting: int = 0
    """Sequences that wait for a place in it."""
    pending_prompt_tokens: int = 0
    """Still to be computed, running and waiting, without those that are expected to be found."""
    free_pages: int = 0
    total_pages: int = 0
    prefill_tokens_per_second: float = 0.0
    """0, as of the next two: not known yet."""
    decode_step_seconds: float = 0.0
    fetch_bytes_per_second: float = 0.0
    tickets: Sequence[str] = ()
    """Of the work that lives there."""
    draining: bool = False
    chunk_tokens: int = 0
    """Most prompt tokens that a step computes where no stream runs; 0: unknown."""
    decode_chunk_tokens: int = 0
    """Most prompt tokens that a step computes beside running streams; 0: as many as without."""
    max_running: int = 0
    """Sequences that run at once, at most; 0, as of the next: unknown."""
    max_sequences: int = 0
    """Sequences that it takes, running and waiting; of more it hands streams back."""
    reserved_pages: int = 0
    """Of the free pages, those that its work is counted for and does not hold yet."""
    ticket_sequences: Sequence[int] = ()
    """As many as tickets, which are sorted: of each, the sequences among running and waiting.
    Empty: unknown."""
