"""Report a worker's load to the routers that watch it, and to its gauges."""

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Protocol

from baton.engine.base import EngineStats
from baton.internal.v1 import worker_pb2
from baton.rpc.timing.pacer import Pacer
from baton.settings import LoadSettings
from baton.worker import metrics
from baton.worker.core import WorkerCore
from baton.worker.stream.reserved import reserved_pages

URGENT_SECONDS = 0.02
"""A report that misleads placements by this many seconds is replaced immediately."""


def load_report(core: WorkerCore, instance_id: str, incarnation: str) -> worker_pb2.LoadReport:
    """Return the current load. A ticket is included once all of its arrived work is counted."""
    stats, info = core.stats, core.engine.info
    counted, sequences = [], Counter[str]()
    on_their_way = set()
    for stream in core.streams.values():
        if not stream.counted:
            on_their_way.add(stream.ticket)
        elif stream.ended:
            sequences[stream.ticket] += 0
        else:
            sequences[stream.ticket] += not stream.paused
            counted.append(stream.pages)
    tickets = sorted(sequences.keys() - on_their_way - {""})
    return worker_pb2.LoadReport(
        instance_id=instance_id,
        incarnation=incarnation,
        running=stats.running,
        waiting=stats.waiting,
        pending_prompt_tokens=stats.pending_prompt_tokens,
        free_pages=stats.free_pages,
        total_pages=stats.total_pages,
        prefill_tokens_per_second=stats.prefill_tokens_per_second,
        decode_step_seconds=stats.decode_step_seconds,
        fetch_bytes_per_second=core.fetch_bytes_per_second,
        tickets=tickets,
        draining=core.draining,
        streams=len(core.streams),
        leases=core.store.leases,
        reservations=core.store.reservations,
        computed_tokens=stats.computed_tokens,
        cached_tokens=stats.cached_tokens,
        pending_cached_tokens=stats.pending_cached_tokens,
        chunk_tokens=info.chunk_tokens,
        decode_chunk_tokens=info.decode_chunk_tokens,
        paused=stats.paused,
        max_running=info.max_running,
        max_sequences=info.max_sequences,
        reserved_pages=reserved_pages(counted, info.layout.block_tokens),
        ticket_sequences=[sequences[ticket] for ticket in tickets],
        resident_adapters=core.resident.digests,
        adapter_slots=core.resident.slots,
        adapter_load_seconds=core.resident.load_seconds,
        classes=[worker_pb2.ClassLoad(**each._asdict()) for each in stats.classes],
    )


def misleads(told: worker_pb2.LoadReport, stats: EngineStats) -> bool:
    """Return whether placements based on the last report would be off by a time that clients
    notice.

    Args:
        told: the last report.
        stats: current stats of the engine.
    """
    if (told.waiting > 0) != (stats.waiting > 0):
        return True  # streams begin to queue, or no longer do
    few, many = sorted((told.free_pages, stats.free_pages))
    if 2 * few < many:
        return True
    queued = abs(
        stats.pending_prompt_tokens
        - stats.pending_cached_tokens
        - told.pending_prompt_tokens
        + told.pending_cached_tokens
    )
    streams = abs(stats.running + stats.waiting - told.running - told.waiting)
    queue_seconds = queued / (stats.prefill_tokens_per_second or 1.0)
    return queue_seconds + streams * stats.decode_step_seconds >= URGENT_SECONDS


class Watcher(Protocol):
    """A router's call that watches the load."""

    def send(self, message: worker_pb2.WatchLoadResponse) -> bool: ...


class LoadReporter:
    """Reports a worker's load to all watchers and sets its gauges. Lives on the asyncio loop.

    A change that would mislead placements is reported immediately, at most once in
    `interval_seconds`; gradual changes while streams run follow within `steady_seconds`; and a
    watcher without a report for `heartbeat_seconds` receives an unchanged one. Nothing is computed
    between steps of the engine.

    Args:
        core: the core whose load is reported; it calls `changed`.
        instance_id: of the worker.
        incarnation: of the worker.
        settings: how often reports are sent.
        loop: the clock; by default the running loop.
    """

    def __init__(
        self,
        core: WorkerCore,
        instance_id: str,
        incarnation: str,
        settings: LoadSettings = LoadSettings(),
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._core = core
        self._instance_id = instance_id
        self._incarnation = incarnation
        self._heartbeat_seconds = settings.heartbeat_seconds
        self._loop = loop or asyncio.get_running_loop()
        self._pacer = Pacer(self._tell, settings.interval_seconds, settings.steady_seconds, loop)
        self.told = self._report()
        """The last report that was sent."""
        self._told_at = self._loop.time()
        self._watchers: dict[Watcher, str] = {}
        """Watchers, with the instance ids of those that are routers."""
        block_size = str(core.engine.info.layout.block_tokens)
        metrics.CACHE_CONFIG.labels(core.model, block_size, str(core.stats.total_pages)).set(1)
        self._running = metrics.RUNNING.labels(core.model)
        self._waiting = metrics.WAITING.labels(core.model)
        self._kv_usage = metrics.KV_USAGE.labels(core.model)
        self._counted = (0, 0, 0, 0, 0, 0)
        """Totals of the engine that its counters have."""
        self._set_gauges()
        core.on_load_changed = self.changed

    def changed(self) -> None:
        """Have the load reported: immediately if the last report misleads."""
        told, core = self.told, self._core
        self._pacer.changed(told.draining != core.draining or misleads(told, core.stats))

    @property
    def routers(self) -> Collection[str]:
        """Return the instance ids of the routers that watch now."""
        return self._watchers.values()

    async def serve(self, call: "Watcher", router_id: str = "") -> None:
        """Send a watcher the current load, and later reports until it disconnects.

        Args:
            call: the watcher.
            router_id: its instance id; empty: it is not a router.
        """
        self._watchers[call] = router_id
        self._pacer.tell()  # other watchers receive it too: all have the same view
        try:
            while True:
                left = self._told_at + self._heartbeat_seconds - self._loop.time()
                if left <= 0.0:
                    self._pacer.tell()
                else:
                    await asyncio.sleep(left)
        finally:
            del self._watchers[call]

    def _report(self) -> worker_pb2.LoadReport:
        return load_report(self._core, self._instance_id, self._incarnation)

    def _tell(self) -> None:
        self.told = self._report()
        self._told_at = self._loop.time()
        self._set_gauges()
        message = worker_pb2.WatchLoadResponse(report=self.told)
        for call in self._watchers:
            call.send(message)

    def _set_gauges(self) -> None:
        stats = self._core.stats
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._kv_usage.set(1 - stats.free_pages / stats.total_pages)
        metrics.PAUSED.set(stats.paused)
        metrics.PAUSED_PAGES.set(stats.paused_pages)
        metrics.OUTRANKED_NOW.set(stats.outranked)
        totals = (
            stats.late_masks,
            stats.computed_tokens,
            stats.cached_tokens,
            stats.outranked_total,
            stats.idle_room_offered,
            stats.idle_room_used,
        )
        counters = (
            metrics.LATE_MASKS,
            metrics.COMPUTED_TOKENS,
            metrics.CACHED_TOKENS,
            metrics.OUTRANKED,
            metrics.IDLE_ROOM_OFFERED,
            metrics.IDLE_ROOM_USED,
        )
        for counter, total, before in zip(counters, totals, self._counted, strict=True):
            counter.inc(max(0, total - before))  # a restarted engine counts from 0
        self._counted = totals
