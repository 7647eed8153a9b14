"""State shared by all streams of one worker."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Protocol

from baton.engine.base import Engine, EngineStats
from baton.engine.events import BlocksEvicted, BlocksReady, Event
from baton.errors import BatonError, Reason, invalid_field
from baton.host.priority import BEHIND_STEPS, add_niceness
from baton.internal.v1 import kvevents_pb2, worker_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.cuts import cut_rules
from baton.kv.events.log import EventLog
from baton.kv.keys import chain_root
from baton.models.adapters.cache import AdapterCache
from baton.sampling import is_plainly_greedy
from baton.settings import KvSettings, WorkerLimits
from baton.worker import metrics
from baton.worker.adapters.downloads import AdapterDownloads
from baton.worker.adapters.known import KnownAdapters
from baton.worker.adapters.resident import ResidentAdapters
from baton.worker.adapters.use import AdapterUse
from baton.worker.convert import sequence_request, work_order
from baton.worker.engine_loop import EngineLoop
from baton.worker.kv.cut_fetch import CutFetch
from baton.worker.kv.fetch import FetchRate, SequenceFetch
from baton.worker.kv.idle import evict_idle_blocks
from baton.worker.kv.publish import KvPublisher, SequencePublish
from baton.worker.pictures import PictureThread
from baton.worker.stream.cuts import StreamCuts
from baton.worker.stream.stream import FrameSink, WorkStream


class Flushable(Protocol):
    """Collects output of one engine step until `flush`."""

    def flush(self) -> None: ...


class WorkerCore:
    """The engine, the store's client, and the streams that use them.

    Lives on the asyncio loop; the engine runs on a separate thread, and so do copies of KV. Open
    streams are bounded by the number of sequences that the engine may queue and run.
    """

    def __init__(
        self,
        engine: Engine,
        engine_loop: EngineLoop,
        store: KvStoreClient,
        model: str,
        epoch: str,
        kv: KvSettings = KvSettings(),
        limits: WorkerLimits = WorkerLimits(),
        adapter_cache: AdapterCache | None = None,
    ) -> None:
        """Assemble the worker's core.

        Args:
            engine: the engine that `engine_loop` started.
            engine_loop: delivers its events to this core from now on; outlives it.
            store: client of the worker's kvstore, which may be unavailable at any time.
            model: the name under which the model is registered.
            epoch: new at every start; tells routers that the prefix cache began empty.
            kv: how KV is published and waited for.
            limits: of streams and sessions.
            adapter_cache: of downloaded adapters; None: the default one.
        """
        self.limits = limits
        self._kv = kv
        self.engine = engine
        self.adapters = KnownAdapters(engine.info.adapters)
        """Adapters that streams may name."""
        self.downloads = AdapterDownloads(adapter_cache or AdapterCache())
        """Brings adapters' files here."""
        self.resident = ResidentAdapters(engine, engine_loop, self.downloads)
        """Adapters in the engine's memory."""
        self.store = store
        self.model = model
        self.draining = False
        self.block_events = EventLog(epoch)
        """Blocks in the engine's prefix cache, reported to routers."""
        self.stats: EngineStats = engine.stats()
        # One thread: copies of KV are bound by memory bandwidth, which more threads would share.
        self._io = ThreadPoolExecutor(
            1, thread_name_prefix="kv-io", initializer=add_niceness, initargs=(BEHIND_STEPS,)
        )
        self._pictures = PictureThread(engine.pictures)
        self._fetch_rate = FetchRate()
        self._publisher = KvPublisher(
            engine,
            store,
            self._io,
            lambda: self.stats.prefill_tokens_per_second,
            kv.publish_batches,
        )
        self._loop = engine_loop
        self.streams: dict[int, WorkStream] = {}
        """Open streams by the engine's sequence id."""
        self._layout_id = engine.info.layout.layout_id
        self._full_first = cut_rules(engine.info.layout).is_full(0)
        # Sequences that have ended keep one page each until they are closed.
        self._max_streams = engine.info.max_sequences + self.stats.total_pages
        self._ids = count(1)
        self.on_load_changed: Callable[[], None] = lambda: None
        """Called after each step of the engine, when a stream ends, when the worker drains, and
        when other adapters are in memory.
        """
        self.resident.on_changed = lambda: self.on_load_changed()
        self._to_flush: list[Flushable] = []
        self._suspects = asyncio.Lock()
        """Lock held while a suspect stream, which may have crashed another worker, is unproven."""
        engine_loop.deliver_to(self._deliver)

    async def publish(self) -> None:
        """Publish KV until cancelled."""
        await self._publisher.run()

    async def evict_idle_blocks(self, idle_seconds: float) -> None:
        """Evict blocks that have been idle for the set time and are in the store, until
        cancelled.
        """
        layout = self.engine.info.layout
        await evict_idle_blocks(self._loop, self.store, layout, idle_seconds)

    def close(self) -> None:
        """Stop the threads, before the engine is closed. All streams must already be closed."""
        self._io.shutdown()
        self.downloads.close()
        self.resident.close()
        self._pictures.close()

    def open(
        self, start: worker_pb2.Start, sink: FrameSink, on_ended: Callable[[WorkStream], None]
    ) -> WorkStream:
        """Open a stream; `on_ended` must `remove` it.

        Raises:
            BatonError: the request is rejected; nothing was started.
        """
        if self.draining:
            raise BatonError(Reason.DRAINING, "this worker is shutting down", retry_after=0.0)
        if len(self.streams) >= self._max_streams:
            full = "the worker's queue is full"
            raise BatonError(Reason.OVERLOADED, full, retry_after=1.0)
        if start.context.model != self.model:
            raise BatonError(
                Reason.MODEL_NOT_FOUND,
                f"this worker serves {self.model}, not {start.context.model}",
                field="model",
            )
        if start.WhichOneof("work") is None:
            raise invalid_field("work", "set one of prefill, prepare and generate")
        info = self.engine.info
        adapter = None
        if start.context.adapter:
            adapter = self.adapters.find(self.model, start.context.adapter, start.adapter_digest)
        digest = b"" if adapter is None else adapter.digest
        root = chain_root(
            self.model, info.weights_digest, self._layout_id, digest, start.cache_salt
        )
        order = work_order(start, self.stats.prefill_tokens_per_second, time.time())
        key = "" if adapter is None else adapter.key
        request = sequence_request(start, next(self._ids), root, info, order, key)
        tenant = start.context.tenant

        def new_fetch() -> SequenceFetch:
            return SequenceFetch(self.engine, self.store, self._io, self._fetch_rate, tenant)

        publishing = SequencePublish(request.id, tenant)
        fetch: SequenceFetch | CutFetch = new_fetch()
        cuts = None
        if info.layout.groups:
            work = getattr(start, start.WhichOneof("work") or "generate")
            fetch = CutFetch(new_fetch, work.sources)
            cuts = StreamCuts(
                start,
                request,
                info.layout,
                self._loop,
                self.store,
                fetch,
                self._publisher,
                publishing,
                self._kv.wait_seconds,
            )
        stream = WorkStream(
            start,
            request,
            self._loop,
            info.layout.block_tokens,
            fetch,
            self._publisher,
            publishing,
            cuts,
            sink,
            on_ended,
            self._kv.wait_seconds,
            self.limits.default_deadline_seconds,
            info.exact_continuation or is_plainly_greedy(request.sampling, 1),
            self._suspects,
            self.engine.grammars,
            self._pictures,
            None if adapter is None else AdapterUse(adapter, self.resident),
        )
        self.streams[stream.sequence_id] = stream
        metrics.STREAMS.set(len(self.streams))
        return stream

    def remove(self, stream: WorkStream) -> None:
        """Remove a stream that has released everything."""
        del self.streams[stream.sequence_id]
        metrics.STREAMS.set(len(self.streams))
        self.on_load_changed()

    @property
    def fetch_bytes_per_second(self) -> float:
        """Return the average rate of recent fetches; 0 while unknown."""
        return self._fetch_rate.bytes_per_second

    def flush_after_step(self, sink: Flushable) -> None:
        """Flush `sink` once the engine step that is being delivered is complete."""
        self._to_flush.append(sink)

    def drain(self) -> None:
        """Accept no more streams."""
        self.draining = True
        self.on_load_changed()

    async def wait_idle(self) -> None:
        """Return when no stream is open."""
        while self.streams:
            await next(iter(self.streams.values())).wait_closed()

    def _deliver(self, events: list[Event], stats: EngineStats) -> None:
        self.stats = stats
        for event in events:
            if isinstance(event, BlocksEvicted):
                self._record_evicted(event)
            elif stream := self.streams.get(event.id):
                # A stream may have ended while its event was in transit, so the look-up can fail.
                if isinstance(event, BlocksReady):
                    self._record_stored(stream, event)
                stream.on_event(event)
        for sink in self._to_flush:
            sink.flush()
        self._to_flush.clear()
        self.on_load_changed()

    def _record_stored(self, stream: WorkStream, event: BlocksReady) -> None:
        keys, tier = stream.full_keys(event), kvevents_pb2.TIER_ENGINE
        self.block_events.stored(self._layout_id, tier, *keys)
        for group, first in enumerate(stream.first_held):
            if group:
                held = keys[max(0, first - event.first_index) :]
                self.block_events.stored(self._layout_id, tier, *held, group=group)
        if rate := self.stats.prefill_tokens_per_second:
            self.block_events.expedite(len(keys) * self.engine.info.layout.block_tokens / rate)

    def _record_evicted(self, event: BlocksEvicted) -> None:
        groups = [event.group]
        if not event.group and self._full_first:
            # Without full attention the block serves no cut; not every engine tells of the others.
            groups = list(range(max(1, len(self.engine.info.layout.groups))))
        for group in groups:
            tier = kvevents_pb2.TIER_ENGINE
            self.block_events.evicted(self._layout_id, tier, *event.keys, group=group)
