"""Runs a completion for an HTTP client: whole, or as a stream of events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from baton.errors import BatonError, Reason
from baton.request.stream_events import Event
from baton.telemetry.logs import get_logger
from services.frontend.http.asgi import Send
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import Wire
from services.frontend.http.responses import KEEP_ALIVE, EventStream, send_json
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.requests import record

log = get_logger(__name__)


Headers = tuple[tuple[bytes, bytes], ...]
Ending = Callable[[], Awaitable[None]]


class BodyEncoder(Protocol):
    """Collects the events of all prompts of a body into one response."""

    def take(self, prompt: int, event: Event) -> object:
        """Add an event of a prompt, by its index."""

    def body(self) -> dict[str, Any]:
        """Return the response for all events so far."""


class EventEncoder(Protocol):
    """Encodes the events of all prompts of a body as server-sent events, one by one."""

    def take(self, prompt: int, event: Event) -> bytes:
        """Return what an event of a prompt, by its index, is for the client; may be empty."""

    def end(self) -> bytes:
        """Return the last events of a stream."""

    def failed(self, error: BatonError) -> bytes:
        """Return the last events of a stream that failed after it began."""


async def no_ending() -> None:
    """Do nothing before the end."""


async def answer_whole(
    batch: GenerationBatch,
    whole: BodyEncoder,
    wire: Wire,
    send: Send,
    headers: Headers = (),
    ending: Ending = no_ending,
) -> None:
    """Run the requests to their ends and send one response. `ending` is awaited before that.

    Raises:
        BatonError: a request failed; nothing was sent.
        ClientGoneError: the client disconnected.
    """

    async with WhileConnected(wire):
        await run_whole(batch, whole)
    await ending()
    await send_json(send, whole.body(), headers=headers)


async def run_whole(batch: GenerationBatch, whole: BodyEncoder) -> None:
    """Run the requests to their ends, and add their events to one response.

    Raises:
        BatonError: a request failed.
    """

    def take(prompt: int, events: list[Event]) -> bool:
        for event in events:
            whole.take(prompt, event)
        return False

    async def go_on() -> None:
        """Continue: nothing is sent before the end."""

    await batch.run(take, go_on)


async def answer_stream(
    batch: GenerationBatch,
    chunks: EventEncoder,
    wire: Wire,
    send: Send,
    keep_alive_seconds: float,
    headers: Headers = (),
    ending: Ending = no_ending,
) -> None:
    """Send events as they happen. An error after the first one becomes the last event.

    Args:
        batch: the running requests.
        chunks: encodes their events.
        wire: the client's connection.
        send: begins and ends the response.
        keep_alive_seconds: a comment is sent after this time without an event.
        headers: of the response, besides those of a stream.
        ending: awaited before the last events; also if the client leaves meanwhile.

    Raises:
        BatonError: a request failed before anything was sent.
        ClientGoneError: the client disconnected.
    """
    stream = EventStream(wire, send, headers)
    idle = _Idle(stream, batch, keep_alive_seconds)
    now = asyncio.get_running_loop().time

    def take(prompt: int, events: list[Event]) -> bool:
        if len(events) == 1:
            data = chunks.take(prompt, events[0])
        else:
            data = b"".join([chunks.take(prompt, event) for event in events])
        if data:
            idle.written_at = now()
        return stream.push(data)

    wire.on_pause, wire.on_resume = batch.pause, batch.resume
    failure: BatonError | None = None
    try:
        async with WhileConnected(wire):
            try:
                await batch.run(take, stream.begin)
            except BatonError as error:
                if not stream.begun:
                    raise
                failure = error
            except Exception:
                if not stream.begun:
                    raise
                log.exception("http.stream.failed")
                failure = BatonError(Reason.INTERNAL, "internal error")
    finally:
        idle.stop()
        wire.on_pause = wire.on_resume = None
    last = b"" if failure is None else _last_events(chunks, failure)
    try:
        await ending()
    except BatonError as error:
        if not stream.begun:
            raise
        failure = failure or error
        last = last or _last_events(chunks, error)
    await stream.end(last or chunks.end())


def _last_events(chunks: EventEncoder, error: BatonError) -> bytes:
    """Record an error that comes after the response's status, and return its events."""
    record.current().error = error
    return chunks.failed(error)


class _Idle:
    """Sends a comment some time after the last write, with one timer and no work per write."""

    def __init__(self, stream: EventStream, batch: GenerationBatch, seconds: float) -> None:
        self._stream = stream
        self._batch = batch
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self.written_at = self._loop.time()
        """Time of the last event, by the loop's clock."""
        self._timer = self._loop.call_later(seconds, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        left = self.written_at + self._seconds - self._loop.time()
        if left <= 0:
            if self._stream.push(KEEP_ALIVE):
                self._batch.wake()  # the response begins with it
            left = self._seconds
        self._timer = self._loop.call_later(left, self._tick)
