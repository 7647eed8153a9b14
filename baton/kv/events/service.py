"""KvEventService: serves an instance's `EventLog`."""

import asyncio
from typing import Any

import grpc

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvevents_pb2 as pb
from baton.internal.v1.kvevents_pb2_grpc import (
    KvEventServiceServicer,
    add_KvEventServiceServicer_to_server,
)
from baton.kv.events.log import EventLog, SlowSubscriberError
from baton.rpc.server.call import ServerCall
from baton.rpc.timing.pacer import Pacer
from baton.settings import EventSettings

SERVICE_NAME = "baton.internal.v1.KvEventService"
MAX_EVERY_NTH = 65_536


class KvEventService(KvEventServiceServicer):
    """Serves a snapshot or the missed events, then live ones, with heartbeats while there are none.

    Lives on the running event loop, which alone writes to the log. Each message wakes every
    subscriber: a change after a pause is sent immediately, and those that follow are batched into
    one message, which is sent sooner if they are urgent. A subscriber that lags behind its bounded
    queue is cut with SLOW_CONSUMER and starts a new watch.
    """

    def __init__(self, log: EventLog, settings: EventSettings = EventSettings()) -> None:
        self._log = log
        self._settings = settings
        self._pacer = Pacer(log.flush, settings.flush_seconds, settings.steady_seconds)
        log.on_pending = self._pacer.changed

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        add_KvEventServiceServicer_to_server(self, server)

    async def Watch(  # type: ignore[override]  # noqa: N802  # it sends its responses itself
        self, request: pb.WatchRequest, context: Any
    ) -> None:
        if not 0 <= request.every_nth <= MAX_EVERY_NTH:
            raise invalid_field(
                "every_nth", f"{request.every_nth} is out of range: 0 to {MAX_EVERY_NTH}"
            )
        await _Feed(self._log, request, context).run(self._settings.heartbeat_seconds)


class _Feed:
    """Sends one subscriber the messages in its queue, in the same turn of the loop."""

    def __init__(self, log: EventLog, request: pb.WatchRequest, call: ServerCall) -> None:
        self._log = log
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._full = False
        """Whether the subscriber has stopped reading."""
        self._cut: asyncio.Future[None] = self._loop.create_future()
        self._subscription = log.subscribe(
            request.epoch, request.sequence, self._send_all, request.every_nth
        )

    async def run(self, heartbeat_seconds: float) -> None:
        """Send until the subscriber disconnects, with heartbeats while there are no messages.

        Raises:
            BatonError: SLOW_CONSUMER.
        """
        self._call.on_resume = self._resume
        try:
            self._send_all()
            while not self._cut.done():
                left = self._sent_at + heartbeat_seconds - self._loop.time()
                if left <= 0.0:
                    self._send(self._log.heartbeat())
                    left = heartbeat_seconds
                await asyncio.wait((self._cut,), timeout=left)
            raise BatonError(
                Reason.SLOW_CONSUMER, "the client read the event stream too slowly; watch again"
            )
        finally:
            self._call.on_resume = None
            self._log.unsubscribe(self._subscription)

    def _resume(self) -> None:
        self._full = False
        self._send_all()

    def _send_all(self) -> None:
        try:
            while not self._full and (message := self._subscription.take()) is not None:
                self._send(message)
        except SlowSubscriberError:
            if not self._cut.done():
                self._cut.set_result(None)

    def _send(self, message: pb.WatchResponse) -> None:
        self._sent_at = self._loop.time()
        self._full = not self._call.send(message)
