"""What a request would cost on a worker, in seconds.

Time to first token is queue + transfer of what is held elsewhere + prefill of what is held nowhere.
Two costs are borne by others and added when placements are compared, not when one is predicted:
reading a prompt stretches the steps of the streams that run on the same engine, and a stream that
joins a batch slows the batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from zlib import crc32

from services.router.prefix_index.match import NOTHING, Coverage, Match
from services.router.state.rates import Rates

Disaggregation = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the cost model is told."""

    disaggregation: Disaggregation = "auto"
    """auto compares; always prefills remotely where it can; never leaves it to decode workers."""
    chunk_tokens: int = 512
    """Prefill hands KV over in chunks of this; all but the last hide behind computing."""
    growth_tokens: int = 256
    """Output tokens to have memory for at the start; more are hoped for, as outputs end."""
    typical_output_tokens: int = 128
    """How long a running stream is expected to keep its place."""
    crowding: float = 0.5
    """Weight of the steps of a batch that a stream joins."""
    continue_remote_tokens: int = 1024
    """A stream that goes on is prefilled remotely only when this much of its prompt is uncached."""
    max_queue_seconds: float = 300.0
    """A longer wait than this is refused."""
    max_readers: int = 8
    """Prefill workers (the best by themselves) that are paired with every decode worker."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker at this moment: its last load report plus what was pledged to it since."""

    id: str
    incarnation: str
    address: str
    reads: bool
    """It takes prefill work for others."""
    writes: bool
    """It decodes."""
    layout_id: bytes
    store_id: str
    """The store that it puts to and gets from; empty while it has none that lives."""
    block_tokens: int
    block_bytes: int
    rates: Rates
    running: int
    waiting: int
    pending_prompt_tokens: int
    free_pages: int
    total_pages: int
    draining: bool = False
    silent: bool = False
    """Its load stream is broken: the worker may be dead, and the numbers are old."""
    spread: int = field(init=False)
    near_block_seconds: float = field(init=False)
    far_block_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        set_once = object.__setattr__
        set_once(self, "spread", crc32(self.id.encode()))
        set_once(self, "near_block_seconds", self.block_bytes / self.rates.local_bytes_per_second)
        set_once(self, "far_block_seconds", self.block_bytes / self.rates.remote_bytes_per_second)

    def blocks(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.block_tokens)

    @property
    def queue_seconds(self) -> float:
        """Until the prompts that are ahead have been read."""
        return self.pending_prompt_tokens / self.rates.prefill_tokens_per_second


@dataclass(frozen=True, slots=True)
class Query:
    """A request to be placed."""

    prompt_tokens: int
    max_tokens: int
    """The most output tokens per choice."""
    n: int = 1
    output_tokens: int = 0
    """Above 0: a stream that goes on after so many tokens."""
    excluded: frozenset[str] = frozenset()
    matches: Mapping[bytes, Match] = field(default_factory=dict)
    """By layout."""
    seed: int = 0
    """Decides between equally good placements."""


class Reading(NamedTuple):
    """What it takes a worker to have the KV of a prompt; seconds."""

    coverage: Coverage
    cached_tokens: int
    uncached_tokens: int
    queue: float
    transfer: float
    prefill: float
    stall: float
    """Seconds that the streams running there would lose, summed over streams."""

    @property
    def seconds(self) -> float:
        """Until the first token."""
        return self.queue + self.transfer + self.prefill


def read(query: Query, worker: Worker, tokens: int, without: str = "") -> Reading:
    """Cost of reading the first `tokens` of prompt and output on a worker.

    At least one token is computed: its logits are needed.

    Args:
        query: the request.
        worker: the worker.
        tokens: of prompt and output, at least 1.
        without: a store that the worker does not fetch from; empty: from all.
    """
    match = query.matches.get(worker.layout_id)
    coverage = match.cover(worker.id, worker.store_id, without) if match else NOTHING
    rates = worker.rates
    cached = min(coverage.blocks * worker.block_tokens, tokens - 1)
    prefill = (tokens - cached) / rates.prefill_tokens_per_second
    stall = 0.0
    if worker.writes:
        # A chunk that takes no longer than a step rides along; what is beyond that is felt.
        stall = worker.running * max(0.0, prefill - rates.decode_step_seconds)
    return Reading(
        coverage,
        cached,
        tokens - cached,
        worker.queue_seconds,
        coverage.local * worker.near_block_seconds + coverage.remote * worker.far_block_seconds,
        prefill,
        stall,
    )


def handoff_seconds(query: Query, writer: Worker, have: Coverage) -> tuple[float, float]:
    """Time for a prompt's KV to get to a decode worker, were none of it hidden.

    Args:
        query: the request.
        writer: the decode worker.
        have: what it has or can fetch already.

    Returns:
        (with a prefill worker on the same store, with one on another store).
    """
    missing = max(0, writer.blocks(query.prompt_tokens) - have.engine)
    near = min(have.local, missing)
    shared = missing * writer.near_block_seconds
    return shared, near * writer.near_block_seconds + (missing - near) * writer.far_block_seconds


def pages_to_write(query: Query, worker: Worker, policy: Policy) -> int:
    """Pages that decoding needs: choices share the prompt's full blocks and grow apart."""
    known = query.prompt_tokens + query.output_tokens
    growth = max(1, min(query.max_tokens - query.output_tokens, policy.growth_tokens))
    shared, tail = divmod(known, worker.block_tokens)
    return shared + query.n * worker.blocks(tail + growth)


def place_seconds(worker: Worker, pages: int, policy: Policy) -> float:
    """Until a decode worker has a place and pages for one more stream."""
    ahead = worker.waiting + (1 if pages > worker.free_pages else 0)
    if not ahead:
        return 0.0
    turn = policy.typical_output_tokens * worker.rates.decode_step_seconds
    return ahead * turn / max(1, worker.running)


def crowd_seconds(worker: Worker, policy: Policy) -> float:
    """What joining a worker's batch costs the batch."""
    streams = worker.running + worker.waiting
    return policy.crowding * worker.rates.decode_step_seconds * streams
