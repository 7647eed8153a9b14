"""KV in: blocks that others computed are copied from the store into the engine's pages."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from baton.engine.base import Admitted, Engine
from baton.internal.v1 import kvstore_pb2
from baton.kv.client.client import FetchedObject, KvFetch, KvStoreClient, StoreUnavailableError
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.kv.copy_threads import run_in_thread

MIN_RATE_BYTES = 1024 * 1024

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What a fetch brought."""

    blocks: int
    """Blocks in place, counted from the first one asked for without a gap."""
    bytes: int
    seconds: float
    """From the first block that came to the last."""
    transport: str
    copy_cpu_seconds: float = 0.0
    """Spent on copying and checking."""


class FetchRate:
    """Bytes per second of fetching, of late; for the router's predictions."""

    def __init__(self) -> None:
        self.bytes_per_second = 0.0
        """0 while unknown."""

    def add(self, count: int, seconds: float) -> None:
        # Fetches of a few blocks measure latency, waits for a prefill measure the prefill.
        if count < MIN_RATE_BYTES or seconds <= 0:
            return
        rate = count / seconds
        old = self.bytes_per_second
        self.bytes_per_second = rate if old == 0 else 0.8 * old + 0.2 * rate


NOTHING = FetchResult(blocks=0, bytes=0, seconds=0.0, transport="")


class SequenceFetch:
    """One sequence's fetch. Sources may be replaced, and the wait ended, at any time."""

    def __init__(
        self,
        engine: Engine,
        store: KvStoreClient,
        io: Executor,
        scratch: memoryview,
        rate: FetchRate,
        tenant: str,
    ) -> None:
        """Prepare it.

        Args:
            engine: whose pages are written.
            store: where blocks come from.
            io: one thread, shared by all fetches of a worker.
            scratch: a block's room, which only that thread uses: blocks are checked there. It stays
                in the processor's cache, and fresh memory would cost more than the copy.
            rate: told how fast it went.
            tenant: whose request it is for.
        """
        self._tenant = tenant
        self._engine = engine
        self._store = store
        self._io = io
        self._scratch = scratch
        self._rate = rate
        self._sources: Sequence[kvstore_pb2.KvSource] | None = None
        self._fetch: KvFetch | None = None
        self._prefill_done = False
        self._arrived: set[int] = set()
        self._bytes = 0
        self._seconds = 0.0
        self._copy_cpu_seconds = 0.0
        self._transport = ""

    def replace_sources(self, sources: Sequence[kvstore_pb2.KvSource]) -> None:
        self._sources = sources
        if self._fetch is not None:
            self._fetch.replace_sources(sources)

    def prefill_done(self) -> None:
        """Stop waiting for blocks: `run` takes what the store holds now and returns."""
        self._prefill_done = True
        if self._fetch is not None:
            self._fetch.abandon()

    async def run(
        self,
        admitted: Admitted,
        keys: Sequence[bytes],
        sources: Sequence[kvstore_pb2.KvSource],
        wait: float,
    ) -> FetchResult:
        """Bring blocks from `admitted.cached_tokens` on.

        Args:
            admitted: the sequence; its pages are written.
            keys: the blocks wanted, the first one being the first that is not cached.
            sources: peer stores that may come to hold them.
            wait: seconds to wait for blocks that are not there; 0 takes what is there.

        A store that is away brings nothing: the engine computes instead.
        """
        if self._sources is None:
            self._sources = sources
        if wait and not self._prefill_done:
            await self._pass(admitted, keys, wait)
        if not wait or self._prefill_done:
            await self._pass(admitted, keys, 0.0)
        blocks = next((i for i in range(len(keys)) if i not in self._arrived), len(keys))
        return FetchResult(
            blocks, self._bytes, self._seconds, self._transport, self._copy_cpu_seconds
        )

    async def _pass(self, admitted: Admitted, keys: Sequence[bytes], wait: float) -> None:
        """Ask once for everything that has not arrived."""
        wanted = [index for index in range(len(keys)) if index not in self._arrived]
        if not wanted:
            return
        info = self._engine.info
        first = admitted.cached_tokens // info.layout.block_tokens
        try:
            fetch = self._store.fetch(
                [keys[index] for index in wanted],
                info.layout.layout_id,
                info.block_bytes,
                self._sources or (),
                wait,
                self._tenant,
            )
        except StoreUnavailableError as error:
            log.info("kv.get.store_away", blocks=len(wanted), error=str(error))
            return
        self._fetch = fetch
        try:
            async for batch in fetch:
                good = await run_in_thread(self._io, self._write, admitted.id, first, wanted, batch)
                self._arrived.update(good)
        except StoreUnavailableError as error:
            log.info("kv.get.store_lost", blocks=len(wanted), error=str(error))
        except Exception:
            log.exception("kv.get.failed", blocks=len(wanted))  # the engine computes what is left
        finally:
            self._fetch = None
            await fetch.aclose()
        metrics.GET_BYTES.inc(fetch.bytes)
        if wait == 0:
            self._rate.add(fetch.bytes, fetch.seconds)
        self._bytes += fetch.bytes
        self._seconds += fetch.seconds
        if fetch.bytes:
            self._transport = fetch.transport

    def _write(
        self, sequence_id: int, first: int, wanted: Sequence[int], batch: list[FetchedObject]
    ) -> list[int]:
        """Copy, check the copy, and only then let the engine see it. Answers what was good."""
        good = []
        began = time.thread_time()
        for fetched in batch:
            index = wanted[fetched.index]
            if fetched.copy_to(self._scratch):
                self._engine.write_block(sequence_id, first + index, self._scratch)
                good.append(index)
        self._copy_cpu_seconds += time.thread_time() - began
        return good
