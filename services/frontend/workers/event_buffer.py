"""The events of one request's worker streams, on their way to the request."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from baton.v1 import common_pb2
from services.frontend.workers.event_queue import EventQueue
from services.frontend.workers.events import StreamEvent

_HOLD_AT = 4
"""Divisor of the limit: streams are held once this share is queued."""

log = get_logger(__name__)


def _nothing(*_: object) -> None:
    """Ignore a notification."""


class EventConsumer(Protocol):
    """Processes events and returns whether it has enough for now.

    Called synchronously from the connection's reader: it must not wait.
    """

    def take_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> bool:
        """Process tokens that did not wait: the hot path. Copy what is kept."""
        ...

    def take(self, events: list[StreamEvent]) -> bool:
        """Process all other events, oldest first; the list is empty after a wake."""
        ...


class EventBuffer:
    """A bounded queue with one consumer, for all streams of one request; lives on the event loop.

    Events go to the consumer immediately, and are queued here while there is none or it is paused:
    at most `limit_bytes` (another 64 KiB may be in the connection's own buffer). Once a quarter of
    that is queued, the request's streams are to be held; the rest is for what is in flight
    meanwhile. An event that does not fit fails the request: the queue is dropped, `on_overflow` is
    called immediately, and `run` raises SLOW_CONSUMER. Producers never wait. A consumer that raises
    fails only its own request.
    """

    def __init__(
        self,
        on_overflow: Callable[[], None],
        limit_bytes: int,
        on_hold: Callable[[bool], None] = _nothing,
    ) -> None:
        """Start with an empty queue.

        Args:
            on_overflow: called when an event does not fit.
            limit_bytes: most bytes of queued events.
            on_hold: called with True when the streams are to be held, with False once the queue is
                empty again.
        """
        self._on_overflow = on_overflow
        self._on_hold = on_hold
        self._limit_bytes = limit_bytes
        self._hold_bytes = limit_bytes // _HOLD_AT
        self._held = False
        self._queue = EventQueue(limit_bytes)
        self._error: BatonError | None = None
        self._consumer: EventConsumer | None = None
        self._enough: asyncio.Future[None] | None = None
        self._woken = False
        self._paused = False

    def put_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> None:
        """Deliver tokens, or queue them, joined to the last event where they continue it."""
        consumer = self._consumer
        if consumer is not None and not self._paused:
            try:
                if consumer.take_tokens(stream_id, choice, position, token_ids, logprobs):
                    self._has_enough()
            except Exception as error:  # noqa: BLE001 - the error is the request's, and reaches it
                self._consumer_failed(error)
            return
        if self._error is None:
            self._added(self._queue.add_tokens(stream_id, choice, position, token_ids, logprobs))

    def put(self, event: StreamEvent) -> None:
        """Deliver any other event, or queue it."""
        if self._error is not None:
            return
        if self._consumer is not None and not (self._paused or self._queue or self._held):
            self._woken = False
            self._hand_over([event])
        elif self._added(self._queue.add(event)):
            self._deliver()

    def put_all(self, events: Sequence[StreamEvent]) -> None:
        """Deliver events that came together, at once, or queue them one by one."""
        if self._consumer is None or self._paused or self._queue or self._held or self._error:
            for event in events:
                self.put(event)
            return
        self._woken = False
        self._hand_over(list(events))

    def fail(self, error: BatonError) -> None:
        """Drop the queue and make `run` raise the error, now or when it is called. Idempotent."""
        if self._error is None:
            self._error = error
            self._queue.clear()
            self._has_enough()

    def wake(self) -> None:
        """Call the consumer, even without an event."""
        self._woken = True
        self._deliver()

    def pause(self) -> None:
        """Queue events until `resume`: the consumer cannot take more."""
        self._paused = True

    def resume(self) -> None:
        """Deliver queued events, and later ones."""
        self._paused = False
        self._deliver()

    def drain(self) -> list[StreamEvent]:
        """Remove the queued events and return them."""
        return self._queue.take()

    def let_go(self) -> None:
        """Drop the queue and all callbacks."""
        self._queue.clear()
        self._consumer = None
        self._on_overflow = self._on_hold = _nothing

    async def run(self, consumer: EventConsumer) -> None:
        """Deliver events to `consumer`, queued ones first, until it has enough.

        Raises:
            BatonError: `fail` was called, the queue overflowed, or the consumer raised (INTERNAL).
        """
        if self._error is not None:
            raise self._error
        self._consumer = consumer
        try:
            self._deliver()
            if self._consumer is not None:
                self._enough = asyncio.get_running_loop().create_future()
                await self._enough
        finally:
            self._consumer = self._enough = None
        if self._error is not None:
            raise self._error

    def _deliver(self) -> None:
        if self._consumer is None or self._paused:
            return
        if self._queue or self._woken:
            self._woken = False
            self._hand_over(self.drain())
        if self._held and not (self._paused or self._queue):  # taking them may have paused it again
            self._held = False
            self._on_hold(False)

    def _hand_over(self, events: list[StreamEvent]) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        try:
            if consumer.take(events):
                self._has_enough()
        except Exception as error:  # noqa: BLE001 - it is the request's, and reaches it
            self._consumer_failed(error)

    def _consumer_failed(self, error: Exception) -> None:
        log.error("request.events.failed", exc_info=error)
        self.fail(BatonError(Reason.INTERNAL, "internal error"))

    def _has_enough(self) -> None:
        self._consumer = None
        if self._enough is not None and not self._enough.done():
            self._enough.set_result(None)

    def _added(self, fitted: bool) -> bool:
        """Hold the streams if enough is queued, or fail if an event did not fit."""
        if not fitted:
            unread = (
                f"the client did not read: more than {self._limit_bytes // 1024} KiB of output "
                "are pending"
            )
            self.fail(BatonError(Reason.SLOW_CONSUMER, unread))
            self._on_overflow()
        elif self._queue.bytes > self._hold_bytes and not self._held:
            self._held = True
            self._on_hold(True)
        return fitted
