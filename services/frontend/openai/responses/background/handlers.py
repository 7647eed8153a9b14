"""Handlers of responses in the background: begin, follow, cancel."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import msgspec

from baton.conversations.background.store import BackgroundStore
from baton.conversations.ids import RESPONSE, parse_id
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason, invalid_field
from services.frontend.http.asgi import Send
from services.frontend.http.protocol.connection import Wire
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.openai.responses.background.following import EventFollower
from services.frontend.openai.responses.background.runs import BackgroundRuns
from services.frontend.openai.responses.input.prepare import PreparedResponse
from services.frontend.openai.stream import Headers
from services.frontend.requests.request import ResolvedRequest

_END_SECONDS = 5.0
"""Time for the owner of a response to cancel it; it looks each second."""
_POLL_SECONDS = 0.1
_MOST_NUMBER = 1 << 31
HeadersOf = Callable[[ResolvedRequest], Headers]
_QUEUED, _IN_PROGRESS = "queued", "in_progress"


class BackgroundResponses:
    """Serves responses in the background. One object per frontend.

    Args:
        runs: of this frontend.
        store: of all.
        follower: sends their events.
    """

    def __init__(
        self, runs: BackgroundRuns, store: BackgroundStore, follower: EventFollower
    ) -> None:
        self._runs = runs
        self._store = store
        self._follower = follower

    async def begin(
        self, prepared: PreparedResponse, wire: Wire, send: Send, headers: HeadersOf
    ) -> None:
        """Begin a response, and send it as it is, or its events.

        Args:
            prepared: the response.
            wire: the client's connection.
            send: sends the answer.
            headers: returns its headers.

        Raises:
            BatonError: it is rejected.
        """
        run = await self._runs.start(prepared)
        lease, told = run.lease, headers(run.request)
        if prepared.body.stream:
            await self._follower.stream(lease.scope, lease.id, 0, wire, send, told)
        else:
            await send_json(send, run.encoder.body(), headers=told)

    async def running(self, scope: StateScope, response: str) -> dict[str, object] | None:
        """Return the body of a response that runs; None: there is none."""
        found = await self._store.running(scope, response)
        if found is None:
            return None
        body: dict[str, object] = msgspec.json.decode(found.body)
        body["status"] = _QUEUED if found.queued else _IN_PROGRESS
        return body | {"output": []}

    async def stream(
        self, scope: StateScope, response: str, query: QueryString, wire: Wire, send: Send
    ) -> None:
        """Send the events of a response again, and those that follow.

        Raises:
            BatonError: INVALID_FIELD: it has no events, or not as many.
        """
        ident, number = parse_id(RESPONSE, response), _number(query.text("starting_after")) + 1
        if ident is None or not await self._has_events(scope, response, ident, number):
            raise invalid_field("stream", "only responses in the background can be streamed again")
        await self._follower.stream(scope, ident, number, wire, send)

    async def _has_events(self, scope: StateScope, response: str, ident: UUID, number: int) -> bool:
        if await self._store.running(scope, response) is not None:
            return True
        if await self._store.pieces_from(scope.tenant, ident, number):
            return True
        if number and await self._store.pieces_from(scope.tenant, ident, 0):
            raise invalid_field("starting_after", "the response has ended, with fewer events")
        return False

    async def end(self, scope: StateScope, response: str) -> bool:
        """Cancel a response, and wait until it has ended; return whether it ran.

        Raises:
            BatonError: ABORTED: it has not ended yet.
        """
        if not await self._store.cancel(scope, response):
            return False
        ident = parse_id(RESPONSE, response)
        run = None if ident is None else self._runs.get(ident)
        if run is not None:
            run.cancel()
        for _ in range(int(_END_SECONDS / _POLL_SECONDS)):
            await asyncio.sleep(_POLL_SECONDS)
            if await self._store.running(scope, response) is None:
                return True
        raise BatonError(
            Reason.ABORTED, "the response is being cancelled; retry in a moment", retry_after=1.0
        )

    async def delete_events(self, scope: StateScope, response: str) -> None:
        """Delete the events of a response that is deleted."""
        ident = parse_id(RESPONSE, response)
        if ident is not None:
            await self._store.delete_events(scope.tenant, ident)


def _number(text: str) -> int:
    """Return the value of `starting_after`; -1: it is missing."""
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_NUMBER:
        raise invalid_field("starting_after", "must be the sequence number of an event")
    return int(text)
