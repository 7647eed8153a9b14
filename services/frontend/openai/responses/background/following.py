"""Streams a response in the background to a client, from any event on, at any frontend."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from baton.conversations.background.events import events_from, is_end
from baton.conversations.background.store import BackgroundStore
from baton.conversations.ids import RESPONSE, text_of
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from services.frontend.http.asgi import Send
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import Wire
from services.frontend.http.responses import KEEP_ALIVE, EventStream, error_event
from services.frontend.openai.responses.background.runs import BackgroundRuns
from services.frontend.openai.stream import Headers

_POLL_SECONDS = 0.5
"""Between two reads of a response that runs at another frontend."""


class EventFollower:
    """Sends events of responses.

    Args:
        runs: of this frontend.
        store: has those of others, about a second later.
        keep_alive_seconds: a comment is sent after this time without an event.
    """

    def __init__(
        self, runs: BackgroundRuns, store: BackgroundStore, keep_alive_seconds: float
    ) -> None:
        self._runs = runs
        self._store = store
        self._keep_alive_seconds = keep_alive_seconds

    async def stream(
        self,
        scope: StateScope,
        response: UUID,
        number: int,
        wire: Wire,
        send: Send,
        headers: Headers = (),
    ) -> None:
        """Send events until the last one; the client may leave at any time.

        Args:
            scope: whose it is; it exists.
            response: its id.
            number: of the first event to send.
            wire: the client's connection.
            send: begins and ends the stream.
            headers: of the stream.
        """
        stream, loop = EventStream(wire, send, headers), asyncio.get_running_loop()
        reads = asyncio.Event()
        reads.set()
        wire.on_pause, wire.on_resume = reads.clear, reads.set
        last, sent_at = b"", loop.time()
        try:
            async with WhileConnected(wire):
                while not last:
                    await reads.wait()
                    events = await self._next(scope, response, number)
                    if events is None:
                        last = error_event(_gone(response))
                        break
                    number += len(events)
                    if events and is_end(events[-1]):
                        *events, last = events
                    if events or loop.time() - sent_at > self._keep_alive_seconds:
                        sent_at = loop.time()
                        if stream.push(b"".join(events) or KEEP_ALIVE):
                            await stream.begin()
        finally:
            wire.on_pause = wire.on_resume = None
        await stream.end(last)

    async def _next(self, scope: StateScope, response: UUID, number: int) -> Sequence[bytes] | None:
        """Return the next events, which may be none after a while; None: there will be none."""
        run = self._runs.get(response)
        while run is not None and (events := run.events_from(number)) is not None:
            if events:
                return events
            if run.ended:
                break
            try:
                async with asyncio.timeout(self._keep_alive_seconds):
                    await run.changed()
            except TimeoutError:
                return ()
        pieces = await self._store.pieces_from(scope.tenant, response, number)
        if pieces:
            return events_from(pieces, number)
        ident = text_of(RESPONSE, response)
        if await self._store.running(scope, ident) is None:
            pieces = await self._store.pieces_from(scope.tenant, response, number)
            return events_from(pieces, number) or None
        await asyncio.sleep(_POLL_SECONDS)
        return ()


def _gone(response: UUID) -> BatonError:
    return BatonError(
        Reason.NOT_FOUND, f"response '{text_of(RESPONSE, response)}' has no more events"
    )
