"""Workers and stores as the cluster registers them, in plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from baton.kv.layout import KvGroup


class Role(StrEnum):
    """The role of an instance that placements choose from."""

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
    """A live worker or store, as registered. Fields after `address` are a worker's."""

    id: str
    role: Role
    incarnation: str = ""
    """Distinguishes a restarted process from its predecessor."""
    address: str = ""
    """Address of its gRPC server, `host:port`."""
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
    groups: tuple[KvGroup, ...] = ()
    """Groups of layers; empty: one of full attention."""


LOWEST = 2**31 - 1
"""Rank below those of all classes: for it, all work counts."""


class ReportedClassLoad(NamedTuple):
    """The part of one class in a worker's load."""

    rank: int
    """Of the class; the lowest is the highest class."""
    running: int = 0
    waiting: int = 0
    pending_prompt_tokens: int = 0
    pages: int = 0
    """Pages that it holds; shared ones are counted for each of its sequences."""


class LoadReport(NamedTuple):
    """A worker's load, and its recent rates."""

    worker_id: str
    incarnation: str = ""
    running: int = 0
    """Sequences in the running batch."""
    waiting: int = 0
    """Sequences that wait to join it."""
    pending_prompt_tokens: int = 0
    """Tokens still to be computed, running and waiting, without those expected to be cached."""
    free_pages: int = 0
    total_pages: int = 0
    prefill_tokens_per_second: float = 0.0
    """0, as for the next two: not known yet."""
    decode_step_seconds: float = 0.0
    fetch_bytes_per_second: float = 0.0
    tickets: Sequence[str] = ()
    """Tickets of the work that it has."""
    draining: bool = False
    chunk_tokens: int = 0
    """Most prompt tokens per step when no stream runs; 0: unknown."""
    decode_chunk_tokens: int = 0
    """Most prompt tokens per step next to running streams; 0: as many as without."""
    max_running: int = 0
    """Most sequences that run at the same time; 0, as for the next: unknown."""
    max_sequences: int = 0
    """Most sequences that it accepts, running and waiting; it returns streams beyond that."""
    reserved_pages: int = 0
    """Free pages that are reserved for its work and not held yet."""
    ticket_sequences: Sequence[int] = ()
    """Parallel to `tickets`, which are sorted: the number of each one's sequences, running and
    waiting. Empty: unknown."""
    resident_adapters: Sequence[bytes] = ()
    """Digests of the registered adapters that are in memory, or being loaded, sorted."""
    adapter_slots: int = 0
    """Most of them at once; 0: it loads none."""
    adapter_load_seconds: float = 0.0
    """0: not known yet."""
    classes: Sequence[ReportedClassLoad] = ()
    """By class; empty: not known."""
