"""What decides a draw, and what comes of it. Imports no torch."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from baton.engine.sampling.counts import TokenCounts
from baton.sampling import SamplingParams
from baton.stream_events import TokenLogprob

_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Draw:
    """What decides one draw, besides the logits."""

    sampling: SamplingParams
    choice: int
    tokens: Sequence[int]
    """Prompt and output so far."""
    prompt_tokens: int
    forbidden: frozenset[int] = frozenset()
    """Tokens that may not be drawn."""
    counts: TokenCounts | None = None
    """Of the very tokens, kept from draw to draw; None: they are counted where penalties ask."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled token."""

    token: int
    logprob: TokenLogprob | None = None


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing else; 53 bits of it are random."""
    key = struct.pack("<QQQ", seed & _MASK_64, choice, position)
    digest = blake2b(key, digest_size=8, person=b"baton.draw.1").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
