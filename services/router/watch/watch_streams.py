"""The streams from one worker or store: its load and its KV events, for as long as it lives."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvevents_pb2, worker_pb2
from baton.internal.v1.cluster_pb2 import Instance
from baton.internal.v1.kvevents_pb2_grpc import KvEventServiceStub
from baton.internal.v1.worker_pb2_grpc import WorkerServiceStub
from baton.kv.events.replica import BlockDelta, BlockReplica
from baton.rpc.channel.channel import Channel
from baton.rpc.streams.client import receive
from baton.rpc.timing.backoff import Backoff
from baton.settings import WatchSettings
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.state.fleet import Fleet
from services.router.watch.convert import ROLES, report_from_proto

log = get_logger(__name__)

_FIRST_RETRY_SECONDS = 0.1
_SLICE_KEYS = 4096
"""Blocks added to the index per slice: a few milliseconds of the event loop."""


async def watch_instance(
    instance: Instance,
    fleet: Fleet,
    on_broken: Callable[[str], None],
    on_report: Callable[[], None],
    settings: WatchSettings,
    router_id: str,
) -> None:
    """Keep a fleet up to date about one instance until cancelled.

    Args:
        instance: what to watch.
        fleet: what to keep up to date; it knows the instance already.
        on_broken: called with the instance's id whenever a stream from it broke.
        on_report: called when a worker has reported its load.
        settings: when a stream counts as broken, and how soon it is reopened.
        router_id: of this router: a worker counts as ready once it is watched by all.
    """
    channel = Channel(instance.address)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_watch_events(channel, instance, fleet, on_broken, settings))
            if ROLES[instance.role].is_worker:
                request = worker_pb2.WatchLoadRequest(router_id=router_id)
                group.create_task(
                    _watch_load(channel, request, instance, fleet, on_broken, on_report, settings)
                )
    finally:
        await channel.close()


async def _watch_load(
    channel: Channel,
    request: worker_pb2.WatchLoadRequest,
    instance: Instance,
    fleet: Fleet,
    on_broken: Callable[[str], None],
    on_report: Callable[[], None],
    settings: WatchSettings,
) -> None:
    stub = channel.stub(WorkerServiceStub)

    async def apply(message: worker_pb2.WatchLoadResponse) -> bool:
        fleet.apply_report(report_from_proto(message.report), time.monotonic())
        on_report()
        return True

    def broken(instance_id: str) -> None:
        fleet.mark_stale(instance_id)
        on_broken(instance_id)

    await _watch("load", instance.id, lambda: stub.WatchLoad(request), apply, broken, settings)


async def _watch_events(
    channel: Channel,
    instance: Instance,
    fleet: Fleet,
    on_broken: Callable[[str], None],
    settings: WatchSettings,
) -> None:
    stub = channel.stub(KvEventServiceStub)
    replica = BlockReplica()

    def open_call() -> Any:
        call = stub.Watch(replica.request())
        replica.opened()
        return call

    async def apply(message: kvevents_pb2.WatchResponse) -> bool:
        try:
            delta = replica.apply(message)
        except ValueError as error:
            raise BatonError(Reason.INTERNAL, f"malformed KV events: {error}") from error
        await _apply_delta(fleet, instance.id, delta)
        if replica.stale:
            metrics.EVENT_GAPS.inc()
            await asyncio.sleep(_FIRST_RETRY_SECONDS)
        return not replica.stale

    await _watch("events", instance.id, open_call, apply, on_broken, settings)


async def _watch(
    stream: str,
    instance_id: str,
    open_call: Callable[[], Any],
    apply: Callable[[Any], Awaitable[bool]],
    on_broken: Callable[[str], None],
    settings: WatchSettings,
) -> None:
    """Apply a stream's messages; reopen it when it breaks or `apply` returns False. Endless."""
    backoff = Backoff(_FIRST_RETRY_SECONDS, settings.retry_seconds)
    is_broken = False
    while True:
        try:
            async with aclosing(receive(open_call(), settings.silence_seconds)) as messages:
                async for message in messages:
                    if is_broken:
                        is_broken = False
                        backoff.reset()
                        log.info("router.stream.recovered", peer=instance_id, stream=stream)
                    if not await apply(message):
                        break
        except BatonError as error:
            metrics.STREAM_BREAKS.labels(stream).inc()
            on_broken(instance_id)
            if not is_broken:
                is_broken = True
                log.warning(
                    "router.stream.broken", peer=instance_id, stream=stream, error=error.message
                )
            await asyncio.sleep(backoff.next())


async def _apply_delta(fleet: Fleet, holder: str, delta: BlockDelta) -> None:
    """Apply what an event message changed, in slices that leave the loop to others."""
    for changes, apply, name in (
        (delta.removed, fleet.index.remove_blocks, "evicted"),
        (delta.added, fleet.index.add_blocks, "stored"),
    ):
        for (_, tier, block_group), keys in changes.items():
            metrics.INDEX_CHANGES.labels(name).inc(len(keys))
            if len(keys) <= _SLICE_KEYS:
                apply(holder, tier, keys, block_group)
                continue
            ordered = list(keys)
            for start in range(0, len(ordered), _SLICE_KEYS):
                apply(holder, tier, ordered[start : start + _SLICE_KEYS], block_group)
                await asyncio.sleep(0)
