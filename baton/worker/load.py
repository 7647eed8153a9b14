"""Reports of how busy a worker is, and its gauges."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

from baton.internal.v1 import worker_pb2
from baton.settings import LoadSettings
from baton.worker import metrics
from baton.worker.core import WorkerCore


def load_report(core: WorkerCore, instance_id: str, incarnation: str) -> worker_pb2.LoadReport:
    """Return the load now."""
    stats = core.stats
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
        tickets=sorted({s.ticket for s in core.streams.values() if s.ticket}),
        draining=core.draining,
        streams=len(core.streams),
        leases=core.store.leases,
        reservations=core.store.reservations,
        computed_tokens=stats.computed_tokens,
        cached_tokens=stats.cached_tokens,
    )


async def load_reports(
    core: WorkerCore, instance_id: str, incarnation: str, settings: LoadSettings
) -> AsyncIterator[worker_pb2.LoadReport]:
    """Yield reports on change, and a heartbeat without one."""
    last, told_at = None, monotonic()
    while True:
        report = load_report(core, instance_id, incarnation)
        if report != last or monotonic() - told_at >= settings.heartbeat_seconds:
            yield report
            last, told_at = report, monotonic()
        await asyncio.sleep(settings.interval_seconds)


async def update_metrics(core: WorkerCore) -> None:
    """Set the gauges to the engine's latest snapshot, twice a second, until cancelled."""
    block_size = str(core.engine.info.layout.block_tokens)
    metrics.CACHE_CONFIG.labels(core.model, block_size, str(core.stats.total_pages)).set(1)
    while True:
        stats = core.stats
        metrics.RUNNING.labels(core.model).set(stats.running)
        metrics.WAITING.labels(core.model).set(stats.waiting)
        metrics.KV_USAGE.labels(core.model).set(1 - stats.free_pages / stats.total_pages)
        metrics.COMPUTED_TOKENS.set(stats.computed_tokens)
        metrics.CACHED_TOKENS.set(stats.cached_tokens)
        await asyncio.sleep(0.5)
