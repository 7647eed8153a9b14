"""What a request would cost on a worker, in seconds.

Time to first token is queue + transfer of the KV that is held elsewhere + prefill of the KV that is
held nowhere. Costs that fall on other requests are added when placements are compared, not when
one is predicted: a prefill stretches the steps of the streams that run on the same engine, or goes
before prompts that wait there, and a stream that joins a batch slows the batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from services.router.prefix_index.match import NOTHING, Coverage, Match
from services.router.state.worker import Worker

Disaggregation = Literal["auto", "always", "never"]
Ranking = Literal["ttft", "finish"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Constants of the cost model."""

    disaggregation: Disaggregation = "auto"
    """auto compares; always prefills remotely where it can; never leaves it to decode workers."""
    chunk_tokens: int = 512
    """KV is handed over in chunks of this many tokens; all but the last hide behind computing."""
    reserve_output_tokens: int = 256
    """Output tokens to have memory for at the start; other streams free memory as they end."""
    typical_output_tokens: int = 128
    """How long a running stream is expected to stay in the batch."""
    batch_slowdown_weight: float = 0.5
    """Weight of the steps of a batch that a stream joins."""
    resume_remote_min_tokens: int = 1024
    """A stream that resumes is prefilled remotely only if this much of its prompt is uncached."""
    max_queue_seconds: float = 300.0
    """A longer wait than this is refused."""
    max_prefill_workers: int = 8
    """Prefill workers, the best by themselves, that are paired with every decode worker."""
    ranking: Ranking = "ttft"
    """ttft: prompts are computed in the order of placement, KV is fetched when their turn comes,
    and stalls of running streams count by their sum. finish: prompts have turns (`Turn`), KV is
    fetched while they wait, and the time between tokens of running streams is a limit."""
    delay_weight: float = 0.5
    """Weight of the seconds that a prompt holds up others, with the ranking finish."""
    itl_target: float = 0.05
    """Seconds that a step of running streams should not exceed, with the ranking finish."""
    engine_chunk_tokens: int = 0
    """Prompt tokens that engines compute in one step beside streams, for `itl_target`; 0: unknown,
    no worker is passed over because of its streams."""


class Turn(NamedTuple):
    """When a prompt's turn would come at a worker, against that of one that is placed last."""

    seconds: float = 0.0
    """Added to the worker's queue: of prompts that are to go there first and were not placed yet,
    less those that wait there and would go later."""
    delayed: int = 0
    """Prompts that wait there and would go later."""


LAST = Turn()


@dataclass(frozen=True, slots=True)
class PlacementQuery:
    """A request to be placed."""

    prompt_tokens: int
    max_tokens: int
    """The most output tokens per choice."""
    n: int = 1
    output_tokens: int = 0
    """Above 0: a stream that resumes after so many tokens."""
    excluded: frozenset[str] = frozenset()
    """Ids of instances that must not be used."""
    matches: Mapping[bytes, Match] = field(default_factory=dict)
    """The held part of the prompt, by layout."""
    seed: int = 0
    """Chooses among equally good placements."""
    turns: Mapping[str, Turn] = field(default_factory=dict)
    """By worker, for the ranking finish; it is the last one at workers that are not named."""


class PrefillEstimate(NamedTuple):
    """What it takes a worker to have the KV of a prompt; seconds."""

    coverage: Coverage
    cached_tokens: int
    uncached_tokens: int
    queue_seconds: float
    transfer_seconds: float
    """That are not hidden behind the queue."""
    prefill_seconds: float
    stall_seconds: float
    """What others would lose, summed over them: streams that run there, or with the ranking finish
    the prompts that wait there and would go later."""

    @property
    def total_seconds(self) -> float:
        """Time until the first token."""
        return self.queue_seconds + self.transfer_seconds + self.prefill_seconds


def estimate_prefill(
    query: PlacementQuery, worker: Worker, tokens: int, policy: Policy, exclude_store: str = ""
) -> PrefillEstimate:
    """Return the cost of the KV of the first `tokens` of prompt and output on a worker.

    At least one token is computed: its logits are needed.

    Args:
        query: the request.
        worker: the worker.
        tokens: of prompt and output, at least 1.
        policy: constants of the cost model.
        exclude_store: a store that the worker does not fetch from; empty: it fetches from all.
    """
    match = query.matches.get(worker.layout_id)
    coverage = match.cover(worker.id, worker.store_id, exclude_store) if match else NOTHING
    rates = worker.rates
    cached = min(coverage.blocks * worker.block_tokens, tokens - 1)
    prefill = (tokens - cached) / rates.prefill_tokens_per_second
    transfer = (
        coverage.local * worker.local_block_seconds + coverage.remote * worker.remote_block_seconds
    )
    queue, stall = worker.queue_seconds, 0.0
    if policy.ranking == "finish":
        turn = query.turns.get(worker.id, LAST)
        queue = max(0.0, queue + turn.seconds)
        transfer = max(0.0, transfer - queue)
        stall = policy.delay_weight * turn.delayed * prefill
    elif worker.can_decode:
        # A chunk that takes no longer than a step costs the batch nothing; the rest delays it.
        stall = worker.running * max(0.0, prefill - rates.decode_step_seconds)
    return PrefillEstimate(
        coverage,
        cached,
        tokens - cached,
        queue,
        transfer,
        prefill,
        stall,
    )


def keeps_itl(worker: Worker, policy: Policy) -> bool:
    """Return whether a worker's streams stay within their target beside a chunk of a prompt."""
    if not worker.running or not policy.engine_chunk_tokens:
        return True
    chunk = policy.engine_chunk_tokens / worker.rates.prefill_tokens_per_second
    return worker.rates.decode_step_seconds + chunk <= policy.itl_target


def handoff_seconds(
    query: PlacementQuery, worker: Worker, coverage: Coverage
) -> tuple[float, float]:
    """Return how long a prompt's KV takes to a decode worker if none of it hides behind computing.

    Args:
        query: the request.
        worker: the decode worker.
        coverage: what it has or can fetch already.

    Returns:
        (with a prefill worker on the same store, with one on another store).
    """
    missing = max(0, worker.pages(query.prompt_tokens) - coverage.engine)
    local = min(coverage.local, missing)
    return (
        missing * worker.local_block_seconds,
        local * worker.local_block_seconds + (missing - local) * worker.remote_block_seconds,
    )


def decode_pages(query: PlacementQuery, block_tokens: int, policy: Policy) -> int:
    """Return the pages that decoding needs: choices share the prompt's full blocks only."""
    known = query.prompt_tokens + query.output_tokens
    growth = max(1, min(query.max_tokens - query.output_tokens, policy.reserve_output_tokens))
    shared, tail = divmod(known, block_tokens)
    return shared + query.n * -(-(tail + growth) // block_tokens)


def admission_wait_seconds(worker: Worker, pages: int, policy: Policy) -> float:
    """Return the time until a decode worker's batch has room and pages for one more stream."""
    ahead = worker.waiting + (1 if pages > worker.free_pages else 0)
    if not ahead:
        return 0.0
    stream_seconds = policy.typical_output_tokens * worker.rates.decode_step_seconds
    return ahead * stream_seconds / max(1, worker.running)


def batch_slowdown_seconds(worker: Worker, policy: Policy) -> float:
    """Return what one more stream in a worker's batch costs the other streams."""
    streams = worker.running + worker.waiting
    return policy.batch_slowdown_weight * worker.rates.decode_step_seconds * streams
