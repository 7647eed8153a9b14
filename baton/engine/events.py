"""Events that an engine reports from a step, in the order in which they happened."""

from dataclasses import dataclass
from enum import Enum

from baton.request.stream_events import TokenLogprob


class EndReason(Enum):
    STOP = "stop"
    LENGTH = "length"
    PREFILLED = "prefilled"
    """With `prefill_only`: the first token is sampled, and the output continues elsewhere."""
    ERROR = "error"
    """The engine could not continue this sequence, but serves others: all choices end with it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence has pages for its context: the prompt, and the output so far of a moved stream."""

    id: int
    cached_tokens: int
    """Leading context tokens (a multiple of block_tokens, at most the context's length) whose KV
    is in the sequence's pages already."""
    keys: tuple[bytes, ...]
    """One key per block of the context, the last one partial if the context ends inside a block."""
    ready_tokens: int = 0
    """Only for layouts with groups: leading tokens of the cut for which it has pages, with which it
    must be started once the missing blocks are written.
    """
    missing: tuple[tuple[int, ...], ...] = ()
    """Only for layouts with groups: the blocks to write, per group. If there are any,
    `cached_tokens` is 0: what is cached is part of a cut that lacks them.
    """


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """New tokens of one choice. A token that ends the output is among them."""

    id: int
    choice: int
    position: int
    """Position of the first token in the choice's output, from 0."""
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Log probabilities of prompt tokens, in order; all of them precede the first token."""

    id: int
    position: int
    """Position of the first one within the prompt, from 1."""
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class BlocksReady:
    """KV blocks that are complete, in all groups, and will not change while the sequence is open.

    Reported once per block and sequence, in order: the blocks of the prompt that were cached,
    written or computed, then those of the output as they fill. The prompt's partial block is
    reported under its partial key when `prefill_only` is set. Groups that do not need a block any
    more may have given it up: `Engine.keep_cuts`.
    """

    id: int
    first_index: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BlocksEvicted:
    """Full blocks that left the prefix cache: until they are reported ready again, other sequences
    do not find them here. (A block enters the cache when a sequence first reports it ready.)
    """

    keys: tuple[bytes, ...]
    group: int = 0
    """The group of the layout that lost them; the others may still have them."""


@dataclass(frozen=True, slots=True)
class CachedBlock:
    """A full block in the prefix cache."""

    key: bytes
    previous: bytes
    """Key of the block that it continues; empty for the first of a chain. If that block is not in
    the prefix cache, this one cannot be found.
    """


@dataclass(frozen=True, slots=True)
class SequenceEnded:
    """A sequence ended without `close`."""

    id: int
    reasons: tuple[EndReason, ...]
    """End reasons, one per choice."""
    computed_tokens: int
    """Tokens of this sequence that went through a forward pass, counted there."""
    cached_tokens: int
    """Prompt tokens whose KV was found (own cache or written) instead of computed."""
    output_tokens: int
    """Tokens sampled here, over all choices."""
    queue_seconds: float
    """Seconds from `add` to Admitted."""
    kv_byte_seconds: float
    error: str = ""
    """Error for the log; empty unless the reasons are ERROR."""
    error_field: str = ""
    """Request field that caused it, whose sender receives `error`. Empty: the engine caused it."""


Event = Admitted | PromptScored | SampledTokens | BlocksReady | BlocksEvicted | SequenceEnded
