"""Batches made by a process of their own, ahead of the one that trains."""

import multiprocessing
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from train.batches import Batch, make_batch

# Full, it makes the producer wait: batches are never more than this many steps out of date.
_AHEAD = 4
_DEADLINE_SECONDS = 120.0


class Feed:
    """Hands out batches in order."""

    def __init__(
        self,
        tokenizer_file: Path,
        seed: int,
        first: int,
        tokens: int,
        context: int,
        *,
        talk: bool = False,
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._progress = self._context.Value("d", 0.0)
        self._batches: multiprocessing.Queue[Batch] = self._context.Queue(_AHEAD)
        self._process = self._context.Process(
            target=_produce,
            args=(
                self._batches,
                self._progress,
                tokenizer_file,
                seed,
                first,
                tokens,
                context,
                talk,
            ),
            daemon=True,
        )

    def next(self, progress: float) -> Batch:
        """The next batch; `progress` (0 to 1) is for those made from now on.

        Raises:
            RuntimeError: the producer died or takes minutes.
        """
        self._progress.value = progress
        try:
            return self._batches.get(timeout=_DEADLINE_SECONDS)
        except queue.Empty:
            raise RuntimeError("no batch came from the process that makes them") from None

    @contextmanager
    def running(self, progress: float) -> Iterator["Feed"]:
        """The producer's life."""
        self._progress.value = progress
        self._process.start()
        try:
            yield self
        finally:
            self._process.terminate()
            self._process.join()


def _produce(batches, progress, tokenizer_file, seed, first, tokens, context, talk):  # type: ignore[no-untyped-def]
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    trainer = multiprocessing.parent_process()
    index = first
    while True:
        batch = make_batch(tokenizer, seed, index, progress.value, tokens, context, talk=talk)
        index += 1
        while True:
            try:
                batches.put(batch, timeout=1.0)
                break
            except queue.Full:
                # A trainer that was killed takes no more: nobody else would end this process.
                if trainer is None or not trainer.is_alive():
                    batches.cancel_join_thread()
                    return
