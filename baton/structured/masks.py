"""Masks of a step, computed on other threads while the step's forward pass runs.

The masks of all rows are computed together; rows that were slow are computed separately, so that no
other row waits for them.
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
"""CPU seconds above which a mask is slow."""
_ROW_SECONDS = 0.0001
"""Additional seconds allowed per row of masks that are computed together."""
_THREADS = 2
_NO_TOKEN = "no token of the model can continue such a text"


class MaskRequest(NamedTuple):
    """One row of a step."""

    state: GrammarState
    tokens: Sequence[int]
    """Prompt and output so far; not changed until the masks are computed."""
    prompt_tokens: int
    forbidden: frozenset[int]
    """Tokens that are forbidden for another reason; allowed if no other token is."""


class PendingMask(NamedTuple):
    """Mask of one row, in computation."""

    computed: "Future[Words]"
    row: int

    def done(self) -> bool:
        return self.computed.done()

    def wait(self) -> Words:
        """Return uint32 [words]; all zero if the state has an error."""
        row: Words = self.computed.result()[self.row]
        return row


class Masks:
    """Computes masks. Its owner calls it for one step at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = vocabulary.words
        self._executor = LLExecutor(_THREADS)
        self._thread = ThreadPoolExecutor(1, "masks")
        self._apart = ThreadPoolExecutor(_THREADS, "slow-masks", add_niceness, (BEHIND_STEPS,))

    def begin(self, requests: Sequence[MaskRequest]) -> "Future[Words]":
        """Begin to compute the masks of the next tokens.

        Returns:
            A future of uint32 [requests, words]; a row is all zero if its state has an error.
        """
        return self._thread.submit(self._together, requests)

    def begin_apart(self, request: MaskRequest) -> "Future[Words]":
        """Begin to compute one row without delaying those of `begin`, and measure it.

        Returns:
            A future of uint32 [1, words], as of `begin`.
        """
        return self._apart.submit(self._alone, request)

    def _together(self, requests: Sequence[MaskRequest]) -> Words:
        began = time.perf_counter()
        masks = self.compute(requests)
        if time.perf_counter() - began > SLOW_SECONDS + len(requests) * _ROW_SECONDS:
            for request in requests:  # one of them was slow, or the machine was busy
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
        """Compute the same masks on the calling thread."""
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
        """Stop the threads."""
        self._thread.shutdown()
        self._apart.shutdown()


def _finish(request: MaskRequest, matcher: LLMatcher, mask: Words) -> None:
    """Remove forbidden tokens from a computed mask, or record why there is none."""
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
    """Remove tokens from a mask, unless none would be left."""
    tokens = np.fromiter(forbidden, np.int64, len(forbidden))
    before = mask.copy()
    np.bitwise_and.at(mask, tokens >> 5, ~(np.uint32(1) << (tokens & 31).astype(np.uint32)))
    if not mask.any():
        mask[:] = before
