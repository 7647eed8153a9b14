"""Input and result of sampling one token. Imports no torch."""

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
    """Input of sampling one token, besides the logits."""

    sampling: SamplingParams
    choice: int
    tokens: Sequence[int]
    """Prompt and output tokens so far."""
    prompt_tokens: int
    forbidden: frozenset[int] = frozenset()
    """Tokens that must not be sampled."""
    counts: TokenCounts | None = None
    """Counts of these tokens, kept between draws; None: counted when penalties need them."""
    mask: "NDArray[np.uint32] | None" = None
    """The only tokens that may be sampled, at least one, as bits: i % 32 of word i // 32 for token
    i. Forbidden tokens are already removed.
    """


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled token."""

    token: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class NotSampled:
    """No token: the request cannot be satisfied, and the others continue."""

    field: str
    """Field of the request that is the cause."""
    error: str


def uniform(seed: int, choice: int, position: int) -> float:
    """Return a number in [0, 1) that depends only on the arguments; 53 bits of it are random."""
    key = struct.pack("<QQQ", seed & _MASK_64, choice, position)
    digest = blake2b(key, digest_size=8, person=b"baton.draw.1").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
