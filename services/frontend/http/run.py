"""Runs a completion for an HTTP client: whole, or as a stream of events."""

import asyncio
from typing import Any, Protocol

from starlette.types import Receive, Send

from baton.rpc.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from services.frontend.events import Event
from services.frontend.http.answer import KEEP_ALIVE, EventStream, error_event, send_json
from services.frontend.http.batch import Batch
from services.frontend.http.disconnect import WhileConnected

KEEP_ALIVE_SECONDS = 15.0

log = get_logger(__name__)


class Answer(Protocol):
    """Collects a whole answer."""

    def take(self, prompt: int, event: Event) -> None: ...
    def body(self) -> dict[str, Any]: ...


class Chunks(Protocol):
    """Encodes a stream."""

    def take(self, prompt: int, event: Event) -> bytes: ...
    def end(self) -> bytes: ...


async def answer_whole(batch: Batch, answer: Answer, receive: Receive, send: Send) -> None:
    """Answer when everything is there.

    Raises:
        BatonError: a request failed; nothing was sent.
        ClientGoneError: the client left.
    """
    async with WhileConnected(receive):
        while not batch.finished:
            for prompt, event in await batch.next():
                answer.take(prompt, event)
    await send_json(send, answer.body())


async def answer_stream(
    batch: Batch,
    chunks: Chunks,
    receive: Receive,
    send: Send,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
) -> None:
    """Answer as things happen. An error after the first event is an event, and the last one.

    Args:
        batch: what runs.
        chunks: encodes what happens.
        receive: tells when the client leaves.
        send: where events go.
        keep_alive_seconds: a comment is sent where there was no event for so long.

    Raises:
        BatonError: a request failed before anything was sent.
        ClientGoneError: the client left.
    """
    stream = EventStream(send)
    async with WhileConnected(receive):
        try:
            await _pump(batch, chunks, stream, keep_alive_seconds)
            last = chunks.end()
        except BatonError as error:
            if not stream.begun:
                raise
            last = error_event(error)
        except Exception:
            if not stream.begun:
                raise
            log.exception("stream failed")
            last = error_event(BatonError(Reason.INTERNAL, "internal error"))
    await stream.end(last)


async def _pump(batch: Batch, chunks: Chunks, stream: EventStream, seconds: float) -> None:
    idle = _Idle(batch, seconds)
    try:
        while not batch.finished:
            events = await batch.next()
            data = b"".join([chunks.take(prompt, event) for prompt, event in events])
            if not events:
                data = KEEP_ALIVE
            if data:
                await stream.write(data)
                idle.written()
    finally:
        idle.stop()


class _Idle:
    """Nudges a batch some time after the last write, with one timer and no work per write."""

    def __init__(self, batch: Batch, seconds: float) -> None:
        self._batch = batch
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._tick)

    def written(self) -> None:
        self._written_at = self._loop.time()

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        left = self._written_at + self._seconds - self._loop.time()
        if left <= 0:
            self._batch.nudge()
            left = self._seconds
        self._timer = self._loop.call_later(left, self._tick)
