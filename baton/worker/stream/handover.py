"""Choose when another worker takes over a stream, because this one is about to stop."""

import asyncio

from baton.worker.kv.publish import SequencePublish

_STEPS = 2
"""Steps that the engine may take between the decision and its end: no block may fill in them."""


class HandedOverError(Exception):
    """The stream continues at another worker."""


class Handover:
    """Finds the moment at which the next worker has least to compute. Owned by a stream.

    The stream continues until then: its client waits only for the next worker's start.

    Args:
        publishing: the stream's KV that is being written to the store.
        block_tokens: tokens per block.
        context_tokens: prompt and output tokens with which the stream began.
    """

    def __init__(self, publishing: SequencePublish, block_tokens: int, context_tokens: int) -> None:
        self._publishing = publishing
        self._block_tokens = block_tokens
        self._context_tokens = context_tokens
        self._sampled = asyncio.Event()
        self._paused = False

    def sampled(self, context_tokens: int) -> None:
        """Record the number of tokens."""
        self._context_tokens = context_tokens
        self._sampled.set()

    def pause(self) -> None:
        """Record that no tokens are being sampled: waiting for a better moment is pointless."""
        self._paused = True
        self._sampled.set()

    async def wait(self, *, decodes: bool) -> None:
        """Return once all full blocks are published, and no further one is about to fill.

        Args:
            decodes: tokens are sampled one by one; else a prompt is computed in chunks, and the
                results of an unfinished chunk are lost.
        """
        while True:
            await self._publishing.wait_done()
            # The last token has no KV yet.
            filled = (self._context_tokens - 1) % self._block_tokens
            if self._paused or not decodes or filled + _STEPS < self._block_tokens:
                return
            self._sampled.clear()
            await self._sampled.wait()
