"""What a request would cost on a worker, in seconds.

Time to first token is queue + transfer of the KV that is held elsewhere + prefill of the KV that is
held nowhere. KV is fetched while a prompt waits for its turn. Costs that fall on other requests are
added when placements are compared, not when one is predicted: a prompt may go before others that
wait, and a stream that joins a batch slows the batch. That a prompt stretches the steps of streams
that run beside it is no cost but a limit: `Policy.itl_target`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from baton.request.room import RESERVED_OUTPUT_TOKENS, choice_pages, output_reserve
from services.router.prefix_index.match import Coverage, Match

Disaggregation = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Constants of the cost model."""

    disaggregation: Disaggregation = "auto"
    """auto compares; always prefills remotely where it can; never leaves it to decode workers."""
    chunk_tokens: int = 512
    """KV is handed over in chunks of this many tokens; all but the last hide behind computing."""
    reserve_output_tokens: int = RESERVED_OUTPUT_TOKENS
    """Output tokens of each choice to have memory for at the start."""
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
    delay_weight: float = 0.5
    """Weight of the seconds that a prompt holds up others."""
    itl_target: float = 0.05
    """Seconds that a step of running streams should not exceed beside a chunk of the prompt, where
    there is a choice; of streams whose class says nothing else."""


class PromptTurn(NamedTuple):
    """When a prompt's turn would come at a worker, against that of one that is placed last."""

    seconds: float = 0.0
    """Added to the worker's queue: of prompts that are to go there first and were not placed yet,
    less those that wait there and would go later."""
    delayed: int = 0
    """Prompts that wait there and would go later."""


class Held(NamedTuple):
    """Room of a decode worker that is kept for requests which go first, once there is enough."""

    choices: int
    pages: int


@dataclass(slots=True)
class PlacementQuery:
    """A request to be placed. It is never changed: not frozen, for that takes longer to make."""

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
    turns: Mapping[str, PromptTurn] = field(default_factory=dict)
    """By worker; it is the last one at workers that are not named."""
    now: float = 0.0
    """When it is placed, by the clock that load reports came by, in seconds."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """By decode worker, what it is to keep for requests that go before."""


class PrefillEstimate(NamedTuple):
    """What it takes a worker to have the KV of a prompt; seconds."""

    coverage: Coverage
    cached_tokens: int
    uncached_tokens: int
    queue_seconds: float
    transfer_seconds: float
    """That are not hidden behind the queue."""
    prefill_seconds: float
    delay_seconds: float
    """What the prompts that wait there and would go later lose, summed over them and weighed."""

    @property
    def total_seconds(self) -> float:
        """Time until the first token."""
        return self.queue_seconds + self.transfer_seconds + self.prefill_seconds


def decode_pages(query: PlacementQuery, block_tokens: int, policy: Policy) -> int:
    """Return the pages that decoding needs: choices share the prompt's full blocks only."""
    known = query.prompt_tokens + query.output_tokens
    most = policy.reserve_output_tokens
    reserve = output_reserve(query.max_tokens, query.output_tokens, most)
    return choice_pages(known, reserve, query.n, block_tokens)
