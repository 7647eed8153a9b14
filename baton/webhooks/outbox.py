"""The outbox: events, written with what causes them."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import NAMESPACE_URL, uuid5

import msgspec

from baton.conversations.ids import parse_id
from baton.conversations.records import StateScope
from baton.webhooks.events import EVENT, make_event
from baton.webhooks.statements import deliveries


class RunsStatements(Protocol):
    """A connection of asyncpg, in a transaction or not, or a `Database`."""

    async def fetch(self, query: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement."""


class EventOutbox:
    """Writes events. One per process, on the event loop.

    Args:
        clock: seconds since the Unix epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._exists = False
        """Whether the schema is known to have the table: it may be that of an earlier release."""

    async def add(
        self,
        runs: RunsStatements,
        scope: StateScope,
        kind: str,
        subject: str,
        callback_url: str = "",
    ) -> None:
        """Write an event: a delivery for each endpoint of the project that receives its type, and
        one for a URL.

        Args:
            runs: the transaction that causes the event; its errors are the caller's.
            scope: whose event it is.
            kind: one of `events.EVENT_TYPES`.
            subject: id of what it is about, as clients have it.
            callback_url: whoever caused it wants to be told there too; empty: nowhere.
        """
        if not self._exists:
            rows = await runs.fetch(deliveries.EXISTS)
            self._exists = rows[0][0]
            if not self._exists:
                return
        now = self._clock()
        event = make_event(kind, subject, now)
        body = msgspec.json.encode(event).decode()
        due = datetime.fromtimestamp(now, UTC)
        values = parse_id(EVENT, event.id), kind, body, due
        await runs.fetch(deliveries.ADD, *scope, *values)
        if callback_url:
            # Receivers are told apart by their endpoints: one that hangs delays no other one, and
            # no other tenant's.
            receiver = uuid5(NAMESPACE_URL, f"{scope.tenant} {callback_url}")
            await runs.fetch(deliveries.ADD_CALLBACK, *scope, *values, receiver, callback_url)
