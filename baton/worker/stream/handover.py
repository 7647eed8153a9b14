"""When another worker goes on with a stream, because this one is about to stop."""

import asyncio

from baton.worker.kv.publish import SequencePublish

_STEPS = 2
"""That the engine may still take, from the decision to its end: no block may fill in them."""


class HandedOverError(Exception):
    """The stream goes on at another worker."""


class Handover:
    """Finds the moment at which the next worker has least to compute. Owned by a stream.

    Until then the stream goes on: its client waits for nothing but the next worker's start.

    Args:
        publishing: the stream's KV on its way to the store.
        block_tokens: tokens of a block.
        context_tokens: prompt and output tokens that the stream began with.
    """

    def __init__(self, publishing: SequencePublish, block_tokens: int, context_tokens: int) -> None:
        self._publishing = publishing
        self._block_tokens = block_tokens
        self._context_tokens = context_tokens
        self._sampled = asyncio.Event()
        self._paused = False

    def sampled(self, context_tokens: int) -> None:
        """Hear how many tokens there are."""
        self._context_tokens = context_tokens
        self._sampled.set()

    def pause(self) -> None:
        """Hear that no tokens come: there is no better moment to wait for."""
        self._paused = True
        self._sampled.set()

    async def wait(self, *, decodes: bool) -> None:
        """Return once all full blocks are published, and no further one is about to fill.

        Args:
            decodes: a token follows the other; else it computes a prompt in chunks, and what is
                computed of one that is not done is lost.
        """
        while True:
            await self._publishing.wait_done()
            # There is no KV of the last token yet.
            filled = (self._context_tokens - 1) % self._block_tokens
            if self._paused or not decodes or filled + _STEPS < self._block_tokens:
                return
            self._sampled.clear()
            await self._sampled.wait()
