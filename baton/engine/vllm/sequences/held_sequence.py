"""One sequence as Baton and vLLM each represent it, and the record of one step."""

from dataclasses import dataclass, field
from typing import Any

from baton.engine.paged.sequence import LiveSequence


@dataclass(slots=True, eq=False)
class HeldSequence:
    """A sequence, and the request that represents it in vLLM."""

    sequence: LiveSequence
    name: str
    """vLLM's id of the request; never reused, as a step in flight may still name an old one."""
    request: Any
    """`vllm.v1.request.Request`."""
    keeps_draws: bool
    """Whether Baton's sampler samples for it, and so may keep tokens."""
    given: bool = False
    """Whether vLLM has been given the request."""
    told: int = 0
    """Number of leading blocks that an event has named."""
    written: set[tuple[int, int]] = field(default_factory=set)
    """Groups and blocks for which `write_blocks` was called, also on other threads."""


@dataclass(slots=True)
class StepRecord:
    """Actions of vLLM's scheduler since the engine last read them."""

    admitted: list[HeldSequence] = field(default_factory=list)
    scheduled: dict[str, HeldSequence] = field(default_factory=dict)
    chunked_tokens: int = 0
    """Tokens that were scheduled in chunks of more than one."""
    decoding: int = 0
    """Number of sequences for which one token was scheduled."""
