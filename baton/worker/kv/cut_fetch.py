"""Fetching what a cut lacks, in all groups at once."""

import asyncio
from collections.abc import Callable, Sequence

from baton.engine.events import Admitted
from baton.internal.v1 import kvstore_pb2
from baton.worker.kv.fetch import FetchResult, SequenceFetch
from baton.worker.kv.fetch_plan import FetchPlan


class CutFetch:
    """Fetches of one sequence, one per group and attempt. Owned by the sequence's stream.

    Sources may be replaced, and the wait ended, at any time.

    Args:
        make: returns a new fetch of the sequence.
        sources: peer stores, until they are replaced.
    """

    def __init__(
        self, make: Callable[[], SequenceFetch], sources: Sequence[kvstore_pb2.KvSource]
    ) -> None:
        self._make = make
        self.sources = sources
        """Peer stores that may hold the blocks now or later."""
        self.waiting_ended = False
        """Whether there is nothing to wait for any more."""
        self._current: list[SequenceFetch] = []

    def replace_sources(self, sources: Sequence[kvstore_pb2.KvSource]) -> None:
        """Replace the peer stores that may hold the blocks now or later."""
        self.sources = sources
        for fetch in self._current:
            fetch.replace_sources(sources)

    def prefill_done(self) -> None:
        """Stop waiting for blocks."""
        self.waiting_ended = True
        for fetch in self._current:
            fetch.prefill_done()

    async def run(
        self,
        admitted: Admitted,
        keys: Sequence[bytes],
        wait_seconds: float,
    ) -> tuple[FetchResult, bool]:
        """Fetch the missing blocks of an admitted sequence; return whether all are in place.

        Args:
            admitted: tells what is missing.
            keys: one per block of the cut.
            wait_seconds: for objects that no store holds yet; 0: do not wait.
        """
        plans = [
            FetchPlan([keys[block] for block in run], self.sources, wait_seconds, run[0], group)
            for group, blocks in enumerate(admitted.missing)
            for run in _runs(blocks)
        ]
        self._current = [self._make() for _ in plans]
        for fetch in self._current:
            if self.waiting_ended:
                fetch.prefill_done()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(fetch.run(admitted, plan))
                for fetch, plan in zip(self._current, plans, strict=True)
            ]
        self._current = []
        results = [task.result() for task in running]
        whole = FetchResult(
            blocks=sum(result.blocks for result in results),
            bytes=sum(result.bytes for result in results),
            seconds=max((result.seconds for result in results), default=0.0),
            wait_seconds=max((result.wait_seconds for result in results), default=0.0),
            transport=next((each.transport for each in results if each.transport), ""),
            copy_cpu_seconds=sum(result.copy_cpu_seconds for result in results),
        )
        return whole, whole.blocks == sum(len(plan.keys) for plan in plans)


def _runs(blocks: Sequence[int]) -> list[list[int]]:
    """Group ascending numbers into runs without gaps."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and runs[-1][-1] + 1 == block:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs
