"""The events of one request's worker streams, on their way to the request."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.telemetry.logs import get_logger
from baton.v1 import common_pb2

# Roughly what Python spends on them.
_EVENT_BYTES = 160
_TOKEN_BYTES = 40
_LOGPROB_BYTES = 120

log = get_logger(__name__)


class TokensReceived:
    """Tokens of one choice, in order."""

    __slots__ = ("choice", "logprobs", "position", "stream_id", "token_ids")

    def __init__(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: list[int],
        logprobs: list[common_pb2.TokenLogprob],
    ) -> None:
        self.stream_id = stream_id
        self.choice = choice
        self.position = position
        self.token_ids = token_ids
        self.logprobs = logprobs


class StreamLost:
    """The connection of a stream broke; nothing more comes of the stream."""

    __slots__ = ("stream_id",)

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id


class WorkerProbed:
    """Whether the worker of a stream that was lost has died."""

    __slots__ = ("died", "stream_id")

    def __init__(self, stream_id: int, died: bool) -> None:
        self.stream_id = stream_id
        self.died = died


StreamEvent = (
    TokensReceived
    | StreamLost
    | WorkerProbed
    | worker_pb2.Prepared
    | worker_pb2.Begun
    | worker_pb2.PromptLogprobs
    | worker_pb2.StreamFinished
    | worker_pb2.StreamFailed
    | worker_pb2.StreamHandedOver
)


def _nothing() -> None:
    """Nobody hears of it."""


class EventConsumer(Protocol):
    """Takes events and returns whether it has enough for now.

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
        """Take tokens that did not have to wait: the hot path. Copy what is kept."""
        ...

    def take(self, events: list[StreamEvent]) -> bool:
        """Take everything else, oldest first; no events after a wake."""
        ...


class EventBuffer:
    """A bounded queue with one consumer, for all streams of one request; lives on the event loop.

    Events go to the consumer at once, and are queued here while there is none or it is paused: at
    most `limit_bytes` (another 64 KiB may be in the connection's own buffer). An event that does
    not fit fails the request: the queue is dropped, `on_overflow` is called at once, and `run`
    raises SLOW_CONSUMER. Producers never wait. A consumer that raises fails only its own request.
    """

    def __init__(self, on_overflow: Callable[[], None], limit_bytes: int) -> None:
        self._on_overflow = on_overflow
        self._limit_bytes = limit_bytes
        self._events: list[StreamEvent] = []
        self._bytes = 0
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
            except Exception as error:  # noqa: BLE001 - it is the request's, and reaches it
                self._consumer_failed(error)
            return
        cost = len(token_ids) * _TOKEN_BYTES + sum(
            _LOGPROB_BYTES * (1 + len(entry.top)) for entry in logprobs
        )
        last = self._events[-1] if self._events else None
        if (
            type(last) is TokensReceived
            and last.stream_id == stream_id
            and last.choice == choice
            and last.position + len(last.token_ids) == position
        ):
            if self._fits(cost):
                last.token_ids.extend(token_ids)
                last.logprobs.extend(logprobs)
        elif self._fits(cost + _EVENT_BYTES):
            self._events.append(
                TokensReceived(stream_id, choice, position, list(token_ids), list(logprobs))
            )

    def put(self, event: StreamEvent) -> None:
        """Deliver any other event, or queue it."""
        if self._fits(_EVENT_BYTES):
            self._events.append(event)
            self._deliver()

    def fail(self, error: BatonError) -> None:
        """Drop the queue and make `run` raise the error, now or when it is called. Idempotent."""
        if self._error is None:
            self._error = error
            self._events.clear()
            self._has_enough()

    def wake(self) -> None:
        """Call the consumer, though there may be no event."""
        self._woken = True
        self._deliver()

    def pause(self) -> None:
        """Queue events until `resume`: the consumer cannot take more."""
        self._paused = True

    def resume(self) -> None:
        """Deliver what is queued, and what comes."""
        self._paused = False
        self._deliver()

    def drain(self) -> list[StreamEvent]:
        """Remove the queued events and return them."""
        events, self._events = self._events, []
        self._bytes = 0
        return events

    def let_go(self) -> None:
        """Drop what is queued, and call nobody back any more."""
        self._events.clear()
        self._consumer = None
        self._on_overflow = _nothing

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
        consumer = self._consumer
        if consumer is None or self._paused or not (self._events or self._woken):
            return
        self._woken = False
        try:
            if consumer.take(self.drain()):
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

    def _fits(self, cost: int) -> bool:
        if self._error is not None:
            return False
        if self._bytes + cost > self._limit_bytes:
            self.fail(
                BatonError(
                    Reason.SLOW_CONSUMER,
                    "the client did not read: more than "
                    f"{self._limit_bytes // 1024} KiB of output wait",
                )
            )
            self._on_overflow()
            return False
        self._bytes += cost
        return True
