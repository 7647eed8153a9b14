"""One sequence as Baton and vLLM each see it, and what one step did to all of them."""

from dataclasses import dataclass, field
from typing import Any

from baton.engine.paged.sequence import LiveSequence


@dataclass(slots=True, eq=False)
class HeldSequence:
    """A sequence, and the request that stands for it in vLLM."""

    sequence: LiveSequence
    name: str
    """vLLM's id of the request; never used twice, as a step in flight may still name an old one."""
    request: Any
    """`vllm.v1.request.Request`."""
    keeps_draws: bool
    """Whether Baton's sampler draws for it, and so may keep something."""
    given: bool = False
    """Whether vLLM knows the request."""
    told: int = 0
    """Leading blocks that an event named."""
    written: set[int] = field(default_factory=set)
    """Blocks that `write_blocks` was called for, also on other threads."""


@dataclass(slots=True)
class StepRecord:
    """What vLLM's scheduler did since the engine looked last."""

    admitted: list[HeldSequence] = field(default_factory=list)
    scheduled: dict[str, HeldSequence] = field(default_factory=dict)
    chunked_tokens: int = 0
    """Tokens that were scheduled in chunks of more than one."""
    decoding: int = 0
    """Sequences of which one token was scheduled."""
