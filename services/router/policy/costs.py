"""What a request would cost on a worker, in seconds.

Time to first token is queue + transfer of the KV that is held elsewhere + prefill of the KV that is
held nowhere. KV is fetched while a prompt waits for its turn. Costs to other requests are added
when placements are compared, not when one is predicted: a prompt may go before others that wait,
and a stream that joins a batch slows the batch. That a prompt stretches the steps of streams
running next to it is not a cost but a limit: `Policy.itl_target`.
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
    """auto: compare; always: prefill remotely if possible; never: prefill on decode workers."""
    chunk_tokens: int = 512
    """Tokens per KV hand-over chunk; the transfer of all but the last overlaps with computing."""
    reserve_output_tokens: int = RESERVED_OUTPUT_TOKENS
    """Output tokens per choice to reserve memory for at the start."""
    typical_output_tokens: int = 128
    """Output tokens that a running stream is expected to stay in the batch for."""
    batch_slowdown_weight: float = 0.5
    """Weight of the slowdown of a batch that a stream joins."""
    resume_remote_min_tokens: int = 1024
    """A resumed stream is prefilled remotely only if this much of its prompt is uncached."""
    max_queue_seconds: float = 300.0
    """A request is rejected if its wait would be longer."""
    max_prefill_workers: int = 8
    """Most prefill workers, the best by themselves, that are paired with every decode worker."""
    delay_weight: float = 0.5
    """Weight of the seconds by which a prompt delays others."""
    itl_target: float = 0.05
    """Seconds that a step of running streams should not exceed next to a chunk of the prompt, where
    there is a choice; the default for streams whose class sets no target."""


class PromptTurn(NamedTuple):
    """When a prompt's turn would come at a worker, relative to one that is placed last."""

    seconds: float = 0.0
    """Added to the worker's queue: seconds of prompts that go there first and are not placed yet,
    less those that wait there and would go later."""
    delayed: int = 0
    """Number of prompts that wait there and would go later."""


class Held(NamedTuple):
    """Space of a decode worker that is held for requests that go first, until they fit."""

    choices: int
    pages: int


@dataclass(slots=True)
class PlacementQuery:
    """A request to be placed. Immutable by convention: `frozen` would make construction slower."""

    prompt_tokens: int
    max_tokens: int
    """Most output tokens per choice."""
    n: int = 1
    output_tokens: int = 0
    """Above 0: a stream that resumes after this many tokens."""
    excluded: frozenset[str] = frozenset()
    """Ids of instances that must not be used."""
    matches: Mapping[bytes, Match] = field(default_factory=dict)
    """The cached part of the prompt, by layout."""
    seed: int = 0
    """Chooses among placements that are equally good."""
    turns: Mapping[str, PromptTurn] = field(default_factory=dict)
    """Turns by worker; at workers without an entry it is the last one."""
    now: float = 0.0
    """Time of the placement in seconds, by the clock of the load reports."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """By decode worker, the space held for requests that go before."""


class PrefillEstimate(NamedTuple):
    """What it takes a worker to obtain the KV of a prompt; times in seconds."""

    coverage: Coverage
    cached_tokens: int
    uncached_tokens: int
    queue_seconds: float
    transfer_seconds: float
    """Seconds of transfer that the queue does not hide."""
    prefill_seconds: float
    delay_seconds: float
    """Weighted sum of the seconds lost by prompts that wait there and would go later."""

    @property
    def total_seconds(self) -> float:
        """Seconds until the first token."""
        return self.queue_seconds + self.transfer_seconds + self.prefill_seconds


def decode_pages(query: PlacementQuery, block_tokens: int, policy: Policy) -> int:
    """Return the pages that decoding needs; choices share only the prompt's full blocks."""
    known = query.prompt_tokens + query.output_tokens
    most = policy.reserve_output_tokens
    reserve = output_reserve(query.max_tokens, query.output_tokens, most)
    return choice_pages(known, reserve, query.n, block_tokens)
