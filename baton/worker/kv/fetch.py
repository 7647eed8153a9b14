"""Fetching KV: blocks computed elsewhere are copied from the store into the engine's pages."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from baton.engine.base import Engine
from baton.engine.events import Admitted
from baton.internal.v1 import kvstore_pb2
from baton.kv.client.client import FetchedObject, KvFetch, KvStoreClient, StoreUnavailableError
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.kv.copy_threads import run_in_thread
from baton.worker.kv.fetch_plan import FetchPlan

MIN_RATE_BYTES = 1024 * 1024

log = get_logger(__name__)


@dataclass(slots=True)
class FetchResult:
    """Result of a fetch."""

    blocks: int = 0
    """Number of consecutive blocks in place, from the first requested one."""
    bytes: int = 0
    seconds: float = 0.0
    """Seconds from the first block's arrival to the last."""
    wait_seconds: float = 0.0
    """Seconds from the start of the fetch to its end, with or without blocks."""
    transport: str = ""
    """`shm`, `nixl` or `grpc`; empty if no bytes arrived."""
    copy_cpu_seconds: float = 0.0
    """CPU seconds spent on copying and checking."""


class FetchRate:
    """Average bytes per second of a worker's recent fetches, for the router's predictions."""

    def __init__(self) -> None:
        self.bytes_per_second = 0.0
        """Average rate; 0 while unknown."""

    def add(self, count: int, seconds: float) -> None:
        """Record one fetch of `count` bytes."""
        # Fetches of a few blocks measure latency, and waits for a prefill measure the prefill.
        if count < MIN_RATE_BYTES or seconds <= 0:
            return
        rate = count / seconds
        old = self.bytes_per_second
        self.bytes_per_second = rate if old == 0 else 0.8 * old + 0.2 * rate


class SequenceFetch:
    """One sequence's fetch: from the store into its pages, with each copy verified.

    Owned by the sequence's stream, on the asyncio loop; copies run in `io`. Sources may be
    replaced, and the wait ended, at any time.

    Args:
        engine: the engine whose pages are written.
        store: the store from which blocks are fetched.
        io: one thread, shared by all fetches of a worker; it alone uses the engine's scratch.
        rate: records the fetch's speed.
        tenant: the tenant of the request.
    """

    def __init__(
        self,
        engine: Engine,
        store: KvStoreClient,
        io: Executor,
        rate: FetchRate,
        tenant: str,
    ) -> None:
        self._engine = engine
        self._store = store
        self._io = io
        self._rate = rate
        self._tenant = tenant
        self._sources: Sequence[kvstore_pb2.KvSource] | None = None
        self._current: KvFetch | None = None
        self._prefill_done = False
        self._in_place: set[int] = set()
        self._result = FetchResult()

    def replace_sources(self, sources: Sequence[kvstore_pb2.KvSource]) -> None:
        """Replace the peer stores that may hold the blocks now or later."""
        self._sources = sources
        if self._current is not None:
            self._current.replace_sources(sources)

    def prefill_done(self) -> None:
        """Stop waiting for blocks: `run` fetches those that the store holds now, and returns."""
        self._prefill_done = True
        if self._current is not None:
            self._current.stop_waiting()

    async def run(self, admitted: Admitted, plan: FetchPlan) -> FetchResult:
        """Fetch the planned blocks into the pages of an admitted sequence.

        If the store is unavailable, nothing is fetched and the engine computes the blocks instead.
        """
        began = time.monotonic()
        if self._sources is None:
            self._sources = plan.sources
        wait = plan.wait_seconds
        if wait and not self._prefill_done:
            await self._fetch_missing(admitted, plan, wait)
        if not wait or self._prefill_done:
            await self._fetch_missing(admitted, plan, 0.0)
        count = len(plan.keys)
        self._result.blocks = next((i for i in range(count) if i not in self._in_place), count)
        self._result.wait_seconds = time.monotonic() - began
        return self._result

    async def _fetch_missing(
        self, admitted: Admitted, plan: FetchPlan, wait_seconds: float
    ) -> None:
        """Request from the store all blocks that are not in place."""
        keys = plan.keys
        wanted = [index for index in range(len(keys)) if index not in self._in_place]
        if not wanted:
            return
        info = self._engine.info
        first = plan.first_block
        if first is None:
            first = admitted.cached_tokens // info.layout.block_tokens
        try:
            fetch = self._store.fetch(
                [keys[index] for index in wanted],
                info.layout.layout_id,
                info.object_bytes[plan.group],
                self._sources or (),
                wait_seconds,
                self._tenant,
                plan.group,
            )
        except StoreUnavailableError as error:
            log.info("kv.fetch.skipped", blocks=len(wanted), error=str(error))
            return
        self._current = fetch
        try:
            async for batch in fetch:
                written = await run_in_thread(
                    self._io, self._write, admitted.id, plan.group, first, wanted, batch
                )
                self._in_place.update(written)
        except StoreUnavailableError as error:
            log.info("kv.fetch.interrupted", blocks=len(wanted), error=str(error))
        except Exception:
            log.exception("kv.fetch.failed", blocks=len(wanted))  # the engine computes the rest
        finally:
            self._current = None
            await fetch.aclose()
        metrics.GET_BYTES.inc(fetch.bytes)
        if wait_seconds == 0:
            self._rate.add(fetch.bytes, fetch.seconds)
        self._result.bytes += fetch.bytes
        self._result.seconds += fetch.seconds
        if fetch.bytes:
            self._result.transport = fetch.transport

    def _write(
        self,
        sequence_id: int,
        group: int,
        first: int,
        wanted: Sequence[int],
        batch: list[FetchedObject],
    ) -> list[int]:
        """Copy and verify blocks; return the correct ones.

        Pages are the sequence's alone until it starts with the correct ones, so that copies are
        verified there if the engine lets them be written, and otherwise in its scratch.
        """
        began = time.thread_time()
        written: list[int] = []
        room = self._engine.scratch.nbytes // self._engine.info.object_bytes[group]
        for at in range(0, len(batch), room):  # the engine's thread may wait for the end of a part
            part = batch[at : at + room]
            blocks = [first + wanted[fetched.index] for fetched in part]
            correct = self._write_part(sequence_id, group, blocks, part)
            written += [
                wanted[each.index] for each, good in zip(part, correct, strict=True) if good
            ]
        self._result.copy_cpu_seconds += time.thread_time() - began
        return written

    def _write_part(
        self, sequence_id: int, group: int, blocks: list[int], part: list[FetchedObject]
    ) -> list[bool]:
        """Copy and verify as many blocks as scratch holds; return which ones are correct."""
        engine = self._engine
        correct = [False] * len(part)

        def fill(n: int, memory: memoryview) -> None:
            correct[n] = part[n].copy_to(memory)

        if not engine.fill_blocks(sequence_id, blocks, fill, group):
            size = engine.info.object_bytes[group]
            checked: list[int] = []
            for n, block in enumerate(blocks):
                at = len(checked) * size
                fill(n, engine.scratch[at : at + size])
                if correct[n]:
                    checked.append(block)
            if checked:
                data = engine.scratch[: len(checked) * size]
                engine.write_blocks(sequence_id, checked, data, group)
        return correct
