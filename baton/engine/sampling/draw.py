"""What decides a draw, and what comes of it. Imports no torch."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from baton.engine.sampling.counts import TokenCounts
from baton.request.stream_events import TokenLogprob
from baton.sampling import SamplingParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    mask: "NDArray[np.uint32] | None" = None
    """The only tokens that may be drawn, at least one, as bits: i % 32 of word i // 32 for token i.
    What is forbidden has been taken out of it."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled token."""

    token: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class NotSampled:
    """No token: the request asks for what cannot be done, and the others go on."""

    field: str
    """Of the request."""
    error: str


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing else; 53 bits of it are random."""
    key = struct.pack("<QQQ", seed & _MASK_64, choice, position)
    digest = blake2b(key, digest_size=8, person=b"baton.draw.1").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
