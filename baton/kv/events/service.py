"""KvEventService: serves an instance's `EventLog`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvevents_pb2 as pb
from baton.internal.v1.kvevents_pb2_grpc import (
    KvEventServiceServicer,
    add_KvEventServiceServicer_to_server,
)
from baton.kv.events.log import EventLog, SlowSubscriberError
from baton.settings import EventSettings

SERVICE_NAME = "baton.internal.v1.KvEventService"
MAX_EVERY_NTH = 65_536


class KvEventService(KvEventServiceServicer):
    """Serves a snapshot or the missed events, then live ones, and a heartbeat where none comes.

    Lives on the running event loop, on which alone the log is written to. Changes within a moment
    make one message, for each message wakes every subscriber. A subscriber that lags behind its
    bounded queue is cut with SLOW_CONSUMER and watches anew.
    """

    def __init__(self, log: EventLog, settings: EventSettings = EventSettings()) -> None:
        self._log = log
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        log.on_pending = self._flush_soon

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        add_KvEventServiceServicer_to_server(self, server)

    async def Watch(  # noqa: N802
        self,
        request: pb.WatchRequest,
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[pb.WatchResponse]:
        if not 0 <= request.every_nth <= MAX_EVERY_NTH:
            raise invalid_field(
                "every_nth", f"{request.every_nth} is out of range: 0 to {MAX_EVERY_NTH}"
            )
        awake = asyncio.Event()
        subscription = self._log.subscribe(
            request.epoch, request.sequence, awake.set, request.every_nth
        )
        try:
            while True:
                message = subscription.take()
                if message is None:
                    message = await self._next(awake)
                if message is not None:
                    yield message
        except SlowSubscriberError as error:
            raise BatonError(
                Reason.SLOW_CONSUMER, "the event stream was read too slowly; watch again"
            ) from error
        finally:
            self._log.unsubscribe(subscription)

    def _flush_soon(self) -> None:
        self._loop.call_later(self._settings.flush_seconds, self._log.flush)

    async def _next(self, awake: asyncio.Event) -> pb.WatchResponse | None:
        """Wait for a message in the queue; return a heartbeat where none comes."""
        awake.clear()
        try:
            async with asyncio.timeout(self._settings.heartbeat_seconds):
                await awake.wait()
        except TimeoutError:
            return self._log.heartbeat()
        return None
