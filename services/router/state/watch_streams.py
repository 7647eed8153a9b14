"""The streams from one worker or store: its load and its KV events, for as long as it lives."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from baton.internal.v1 import kvevents_pb2, worker_pb2
from baton.internal.v1.cluster_pb2 import Instance
from baton.internal.v1.kvevents_pb2_grpc import KvEventServiceStub
from baton.internal.v1.worker_pb2_grpc import WorkerServiceStub
from baton.kv.events.log import BlockDelta, BlockReplica
from baton.rpc.channels import open_channel
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.state.fleet import WORKER_ROLES, Fleet

log = get_logger(__name__)

IDLE_TIMEOUT_SECONDS = 2.0
"""Both streams say something at least once a second; a longer pause is a broken stream."""
_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 1.0
_SLICE_KEYS = 4096
"""Blocks that are taken into the index at once: a few milliseconds of the event loop."""


class StreamBrokenError(Exception):
    """A stream ended, failed or sent nothing for too long; the text says which."""


async def watch_instance(
    instance: Instance, fleet: Fleet, on_broken: Callable[[str], None]
) -> None:
    """Keep a fleet up to date about one instance until cancelled.

    Args:
        instance: what to watch.
        fleet: what to keep up to date; it knows the instance already.
        on_broken: called with the instance's id whenever a stream from it broke.
    """
    channel = open_channel(instance.address)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_watch_events(channel, instance, fleet, on_broken))
            if instance.role in WORKER_ROLES:
                group.create_task(_watch_load(channel, instance, fleet, on_broken))
    finally:
        await channel.close(None)


async def _watch_load(
    channel: grpc.aio.Channel, instance: Instance, fleet: Fleet, on_broken: Callable[[str], None]
) -> None:
    stub: Any = WorkerServiceStub(channel)
    retry = _Retry(instance.id, "load")
    while True:
        try:
            call = stub.WatchLoad(worker_pb2.WatchLoadRequest())
            async with aclosing(_messages(call)) as messages:
                async for message in messages:
                    retry.received()
                    fleet.apply_report(message.report)
        except StreamBrokenError as error:
            fleet.mark_stale(instance.id)
            on_broken(instance.id)
            await retry.wait(error)


async def _watch_events(
    channel: grpc.aio.Channel, instance: Instance, fleet: Fleet, on_broken: Callable[[str], None]
) -> None:
    stub: Any = KvEventServiceStub(channel)
    retry = _Retry(instance.id, "events")
    mirror = BlockReplica()
    while True:
        try:
            call = stub.Watch(mirror.request())
            mirror.opened()
            async with aclosing(_messages(call)) as messages:
                async for message in messages:
                    retry.received()
                    await _apply_delta(fleet, instance.id, _apply(mirror, message))
                    if mirror.stale:
                        metrics.EVENT_GAPS.inc()
                        await asyncio.sleep(_FIRST_RETRY_SECONDS)
                        break
        except StreamBrokenError as error:
            on_broken(instance.id)
            await retry.wait(error)


def _apply(mirror: BlockReplica, message: kvevents_pb2.WatchResponse) -> BlockDelta:
    try:
        return mirror.apply(message)
    except ValueError as error:
        raise StreamBrokenError(f"malformed: {error}") from error


async def _apply_delta(fleet: Fleet, holder: str, delta: BlockDelta) -> None:
    """Apply what an event message changed, in slices that leave the loop to others."""
    for changes, apply, name in (
        (delta.removed, fleet.index.remove_blocks, "evicted"),
        (delta.added, fleet.index.add_blocks, "stored"),
    ):
        for (_, tier), keys in changes.items():
            metrics.INDEX_CHANGES.labels(name).inc(len(keys))
            if len(keys) <= _SLICE_KEYS:
                apply(holder, tier, keys)
                continue
            ordered = list(keys)
            for start in range(0, len(ordered), _SLICE_KEYS):
                apply(holder, tier, ordered[start : start + _SLICE_KEYS])
                await asyncio.sleep(0)


async def _messages(call: Any) -> AsyncGenerator[Any, None]:
    """The messages of a stream; it never just ends.

    Raises:
        StreamBrokenError: always, in the end.
    """
    try:
        while True:
            async with asyncio.timeout(IDLE_TIMEOUT_SECONDS):
                message = await call.read()
            if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                raise StreamBrokenError("ended")
            yield message
    except TimeoutError as error:
        raise StreamBrokenError("idle") from error
    except grpc.aio.AioRpcError as error:
        raise StreamBrokenError(error.code().name) from error
    finally:
        call.cancel()


class _Retry:
    """Waits before a broken stream is opened again, longer each time, and logs the first break."""

    def __init__(self, instance_id: str, stream: str) -> None:
        self._instance_id = instance_id
        self._stream = stream
        self._seconds = _FIRST_RETRY_SECONDS
        self._broken = False

    def received(self) -> None:
        """Start over from the first delay: a message came."""
        if self._broken:
            self._broken = False
            self._seconds = _FIRST_RETRY_SECONDS
            log.info("router.stream.recovered", peer=self._instance_id, stream=self._stream)

    async def wait(self, error: StreamBrokenError) -> None:
        """Wait before the stream is opened again."""
        metrics.STREAM_BREAKS.labels(self._stream).inc()
        if not self._broken:
            self._broken = True
            log.warning(
                "router.stream.broken",
                peer=self._instance_id,
                stream=self._stream,
                error=str(error),
            )
        await asyncio.sleep(self._seconds * (0.5 + random.random()))
        self._seconds = min(2 * self._seconds, _LAST_RETRY_SECONDS)
