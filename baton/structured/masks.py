"""Masks of a step, computed on other threads while the step's forward pass runs."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor
from numpy.typing import NDArray

from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary

Words = NDArray[np.uint32]
_THREADS = 2
_NO_TOKEN = "no token of the model goes on with such a text"


class MaskRequest(NamedTuple):
    """One row of a step."""

    state: GrammarState
    tokens: Sequence[int]
    """Prompt and output so far; not changed until the masks are there."""
    prompt_tokens: int
    forbidden: frozenset[int]
    """Tokens that may not come for another reason; they may where none else is left."""


class Masks:
    """Computes masks. Its owner calls it, one step at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = vocabulary.words
        self._executor = LLExecutor(_THREADS)
        self._thread = ThreadPoolExecutor(1, "masks")

    def begin(self, requests: Sequence[MaskRequest]) -> "Future[Words]":
        """Begin to compute what may come next.

        Returns:
            What becomes uint32 [requests, words]; a row is all zero where its state has an error.
        """
        return self._thread.submit(self.compute, requests)

    def compute(self, requests: Sequence[MaskRequest]) -> Words:
        """Compute the same here and now."""
        masks = np.zeros((len(requests), self._words), np.uint32)
        running = []
        for row, request in enumerate(requests):
            matcher = request.state.advance(request.tokens, request.prompt_tokens)
            if matcher is not None:
                running.append((matcher, row))
        if running:
            self._executor.unsafe_compute_mask_ptr(
                running, masks.ctypes.data, 4 * self._words, len(requests)
            )
        for matcher, row in running:
            request = requests[row]
            if matcher.is_error():
                masks[row] = 0
                request.state.fail(matcher.get_error())
            elif not masks[row].any():
                request.state.fail(_NO_TOKEN)
            elif request.forbidden:
                _forbid(masks[row], request.forbidden)
        return masks

    def close(self) -> None:
        """End the threads."""
        self._thread.shutdown()


def _forbid(mask: Words, forbidden: frozenset[int]) -> None:
    """Take tokens out of a mask, unless nothing would be left of it."""
    tokens = np.fromiter(forbidden, np.int64, len(forbidden))
    before = mask.copy()
    np.bitwise_and.at(mask, tokens >> 5, ~(np.uint32(1) << (tokens & 31).astype(np.uint32)))
    if not mask.any():
        mask[:] = before
