"""Try the first tokens of a text before a grammar is accepted: some grammars fail on them."""

from collections.abc import Collection

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from baton.structured.vocabulary import Vocabulary

_TRIED = 8
"""Number of tokens; each costs a mask."""
_OPENING = "{["
"""Characters that lead furthest into a grammar: to a schema's branches and optional properties."""


def beginning_error(vocabulary: Vocabulary, matcher: LLMatcher) -> str:
    """Try one beginning, which enters objects and arrays where possible.

    Masks are computed before tokens are consumed, because computing one releases the interpreter's
    lock.

    Args:
        vocabulary: of the matcher.
        matcher: without an error, at the beginning of its grammar, where it stays.

    Returns:
        The library's error; empty: the output can begin.
    """
    opening = [ids[0] for text in _OPENING if len(ids := vocabulary.tokenize(text)) == 1]
    mask = np.zeros(vocabulary.words, np.uint32)
    at = matcher  # its first mask is then cached for all that begin
    for _ in range(_TRIED):
        at.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if at.is_error() or not mask.any():
            break
        if at is matcher:
            at = matcher.deep_copy()
        token = next((one for one in opening if _allows(mask, one)), _lowest(mask))
        if not at.consume_token(token) or at.is_stopped():
            break
    if at.is_error():
        return at.get_error()
    return "" if mask.any() or at is not matcher else "no token of the model can start such a text"


def can_begin_without(vocabulary: Vocabulary, matcher: LLMatcher, tokens: Collection[int]) -> bool:
    """Return whether an output can begin with a token other than these.

    Args:
        vocabulary: of the matcher.
        matcher: at the beginning of its grammar, where it stays.
        tokens: of the vocabulary.
    """
    mask = np.zeros(vocabulary.words, np.uint32)
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    for token in tokens:
        mask[token >> 5] &= ~np.uint32(1 << (token & 31))
    return bool(mask.any())


def _allows(mask: NDArray[np.uint32], token: int) -> bool:
    return bool(mask[token >> 5] >> (token & 31) & 1)


def _lowest(mask: NDArray[np.uint32]) -> int:
    word = int(mask.nonzero()[0][0])
    bits = int(mask[word])
    return 32 * word + (bits & -bits).bit_length() - 1
