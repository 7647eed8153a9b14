"""One worker as placements see it."""

from dataclasses import dataclass, field
from zlib import crc32

from services.router.state.rates import WorkerRates


@dataclass(slots=True, eq=False)
class Worker:
    """A worker at this moment: its last load report plus the in-flight load of later placements.

    It is made anew for every report and placement, and never changed: not frozen, for that takes
    three times as long to make.
    """

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
    rates: WorkerRates
    running: int
    waiting: int
    pending_prompt_tokens: int
    free_pages: int
    total_pages: int
    tokenizer_digest: bytes = b""
    """Which tokenizer made the tokens that its model understands."""
    adapters: frozenset[tuple[str, bytes]] = frozenset()
    """Name and digest of each adapter that it serves."""
    draining: bool = False
    stale: bool = False
    """Its load stream is broken: the worker may be dead, and the numbers are old."""
    id_hash: int = field(init=False)
    queue_seconds: float = field(init=False)
    """Until the prompts that are queued here are computed."""
    local_block_seconds: float = field(init=False)
    remote_block_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.id_hash = crc32(self.id.encode())
        self.queue_seconds = self.pending_prompt_tokens / self.rates.prefill_tokens_per_second
        self.local_block_seconds = self.block_bytes / self.rates.local_bytes_per_second
        self.remote_block_seconds = self.block_bytes / self.rates.remote_bytes_per_second

    def pages(self, tokens: int) -> int:
        """Return how many KV pages hold so many tokens."""
        return -(-tokens // self.block_tokens)
