"""One worker as seen by placements."""

import math
from dataclasses import dataclass, field
from zlib import crc32

from services.router.state.rates import WorkerRates
from services.router.state.room import UNBOUNDED, Room


@dataclass(slots=True, eq=False)
class RegisteredWorker:
    """A worker's registration; unchanged until it registers again, or its store leaves."""

    id: str
    incarnation: str
    address: str
    can_prefill: bool
    """It prefills for decode workers."""
    can_decode: bool
    layout_id: bytes
    store_id: str
    """The live store that it puts to and gets from; empty: none."""
    block_tokens: int
    block_bytes: int
    tokenizer_digest: bytes = b""
    """Digest of the tokenizer of its model."""
    adapters: frozenset[tuple[str, bytes]] = frozenset()
    """Name and digest of each adapter that it serves."""
    draining: bool = False
    """As registered."""
    id_hash: int = field(init=False)

    def __post_init__(self) -> None:
        self.id_hash = crc32(self.id.encode())


@dataclass(slots=True, eq=False)
class Worker:
    """A worker at one moment: its last load report plus the in-flight load of later placements.

    Made anew for every report and placement, and immutable by convention: `frozen` would make
    construction take three times as long.
    """

    registered: RegisteredWorker
    rates: WorkerRates
    running: int
    waiting: int
    pending_prompt_tokens: int
    """Prompt tokens to compute, as reported and sent since."""
    free_pages: int
    total_pages: int
    decode_chunk_tokens: int = 0
    """Most prompt tokens per step next to running streams; 0: unknown."""
    draining: bool = False
    stale: bool = False
    """Its load stream is broken: the worker may be dead, and the numbers are old."""
    computed_seconds: float = 0.0
    """Seconds of its pending prompts that it is assumed to have computed by `computed_at`."""
    computed_at: float = 0.0
    computes_until: float = 0.0
    """It is assumed to compute until then. Times are of a monotonic clock, in seconds."""
    itl_target: float = math.inf
    """The strictest target of the streams that run here, in seconds between tokens; infinite: no
    class sets any."""
    itl_target_of_all: bool = False
    """Whether each stream's class sets a target; otherwise the policy's applies, too."""
    max_sequences: float = math.inf
    """Most sequences that it accepts, running and waiting; infinite: not reported."""
    room: Room = UNBOUNDED
    """Its free space; `free_pages` excludes pages that work here, or in flight to it, is counted
    for."""
    streams_beside: bool = field(init=False)
    """Whether prompts are computed here next to running streams, in chunks that are known."""
    prefill_token_seconds: float = field(init=False)
    """Seconds per prompt token next to the running streams: each chunk takes a step too."""
    pending_seconds: float = field(init=False)
    """Seconds to compute its pending prompts, from their beginning."""
    dry_at: float = field(init=False)
    """When they are computed, if that is before `computes_until`."""

    def __post_init__(self) -> None:
        rates, chunk = self.rates, self.decode_chunk_tokens
        seconds = 1.0 / rates.prefill_tokens_per_second
        # The sequences of a worker that does not decode are the prompts that it computes.
        self.streams_beside = beside = chunk > 0 and self.running > 0 and self.registered.can_decode
        if beside:
            seconds += rates.decode_step_seconds / chunk
        self.prefill_token_seconds = seconds
        self.pending_seconds = pending = self.pending_prompt_tokens * seconds
        self.dry_at = self.computed_at + pending - self.computed_seconds

    @property
    def id(self) -> str:
        """As registered, like the next ones."""
        return self.registered.id

    @property
    def incarnation(self) -> str:
        return self.registered.incarnation

    @property
    def address(self) -> str:
        return self.registered.address

    @property
    def can_prefill(self) -> bool:
        return self.registered.can_prefill

    @property
    def can_decode(self) -> bool:
        return self.registered.can_decode

    @property
    def layout_id(self) -> bytes:
        return self.registered.layout_id

    @property
    def store_id(self) -> str:
        return self.registered.store_id

    @property
    def block_tokens(self) -> int:
        return self.registered.block_tokens

    @property
    def tokenizer_digest(self) -> bytes:
        return self.registered.tokenizer_digest

    @property
    def adapters(self) -> frozenset[tuple[str, bytes]]:
        return self.registered.adapters

    def queue_seconds(self, now: float) -> float:
        """Return the seconds from now until the prompts that are queued here are computed."""
        until = self.computes_until
        left = self.dry_at - (now if now < until else until)
        return left if left > 0.0 else 0.0

    def itl_limit(self, default: float) -> float:
        """Return the target time between tokens of the streams here, in seconds.

        Args:
            default: for streams whose class sets no target, or is not known.
        """
        return self.itl_target if self.itl_target_of_all else min(self.itl_target, default)

    def pages(self, tokens: int) -> int:
        """Return how many KV pages hold the given tokens."""
        return -(-tokens // self.registered.block_tokens)
