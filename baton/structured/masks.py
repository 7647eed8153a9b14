"""Masks of a step, computed on other threads while the step's forward pass runs.

Those of all rows together, at once; those of rows that took long apart, so that nobody else need
wait for them.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor, LLMatcher
from numpy.typing import NDArray

from baton.host.priority import BEHIND_STEPS, add_niceness
from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary

Words = NDArray[np.uint32]
SLOW_SECONDS = 0.0005
"""Of processor time: a mask that takes more is slow."""
_ROW_SECONDS = 0.0001
"""What a row of masks that are computed together may take besides."""
_THREADS = 2
_NO_TOKEN = "no token of the model can continue such a text"


class MaskRequest(NamedTuple):
    """One row of a step."""

    state: GrammarState
    tokens: Sequence[int]
    """Prompt and output so far; not changed until the masks are there."""
    prompt_tokens: int
    forbidden: frozenset[int]
    """Tokens that may not come for another reason; they may where none else is left."""


class PendingMask(NamedTuple):
    """The mask of one row, on its way."""

    computed: "Future[Words]"
    row: int

    def done(self) -> bool:
        return self.computed.done()

    def wait(self) -> Words:
        """Return uint32 [words]; all zero where the state has an error."""
        row: Words = self.computed.result()[self.row]
        return row


class Masks:
    """Computes masks. Its owner calls it, one step at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = vocabulary.words
        self._executor = LLExecutor(_THREADS)
        self._thread = ThreadPoolExecutor(1, "masks")
        self._apart = ThreadPoolExecutor(_THREADS, "slow-masks", add_niceness, (BEHIND_STEPS,))

    def begin(self, requests: Sequence[MaskRequest]) -> "Future[Words]":
        """Begin to compute what may come next.

        Returns:
            What becomes uint32 [requests, words]; a row is all zero where its state has an error.
        """
        return self._thread.submit(self._together, requests)

    def begin_apart(self, request: MaskRequest) -> "Future[Words]":
        """Begin to compute one row, without delaying what `begin` does, and measure it.

        Returns:
            What becomes uint32 [1, words], as of `begin`.
        """
        return self._apart.submit(self._alone, request)

    def _together(self, requests: Sequence[MaskRequest]) -> Words:
        began = time.perf_counter()
        masks = self.compute(requests)
        if time.perf_counter() - began > SLOW_SECONDS + len(requests) * _ROW_SECONDS:
            for request in requests:  # one of them, or the machine was busy
                request.state.suspect = True
        return masks

    def _alone(self, request: MaskRequest) -> Words:
        began = time.thread_time()
        mask = np.zeros((1, self._words), np.uint32)
        matcher = request.state.advance(request.tokens, request.prompt_tokens)
        if matcher is not None:
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            _finish(request, matcher, mask[0])
        request.state.took(time.thread_time() - began)
        return mask

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
            _finish(requests[row], matcher, masks[row])
        return masks

    def close(self) -> None:
        """End the threads."""
        self._thread.shutdown()
        self._apart.shutdown()


def _finish(request: MaskRequest, matcher: LLMatcher, mask: Words) -> None:
    """Take what is forbidden out of a mask that was computed, or record why there is none."""
    if matcher.is_error():
        mask[:] = 0
        request.state.fail(matcher.get_error())
    elif not mask.any():
        request.state.fail(_NO_TOKEN)
    else:
        if digits := request.state.compiled.digits:
            numbers = request.state.compiled.vocabulary.numbers
            numbers.bound(mask, request.tokens, request.prompt_tokens, digits)
        if request.forbidden:
            _forbid(mask, request.forbidden)


def _forbid(mask: Words, forbidden: frozenset[int]) -> None:
    """Take tokens out of a mask, unless nothing would be left of it."""
    tokens = np.fromiter(forbidden, np.int64, len(forbidden))
    before = mask.copy()
    np.bitwise_and.at(mask, tokens >> 5, ~(np.uint32(1) << (tokens & 31).astype(np.uint32)))
    if not mask.any():
        mask[:] = before
