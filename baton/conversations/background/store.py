"""The store of responses that run in the background."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from baton.conversations.background import statements
from baton.conversations.background.records import (
    ClaimedRun,
    EventPiece,
    RunLease,
    RunningResponse,
)
from baton.conversations.failures import failures, unavailable
from baton.conversations.ids import RESPONSE, parse_id, text_of
from baton.conversations.partitions import with_months
from baton.conversations.records import StateScope, Turn
from baton.conversations.store import ConversationStore

_PIECES_AT_ONCE = 64


class EventSink(Protocol):
    """Where the ends of responses are told: `baton.webhooks.outbox.EventOutbox`."""

    async def add(self, runs: Any, scope: StateScope, kind: str, subject: str) -> None:
        """Write an event of a kind about a subject, in a connection's transaction."""


class BackgroundStore:
    """Leases, and what was generated under them. One per frontend, on the event loop.

    Errors, besides those that a method names: BatonError UNAVAILABLE, if the database is away or
    slow.

    Args:
        conversations: where responses are stored in the end.
        owner: the id of this frontend.
        outbox: gets an event of each response that ends; None: there is none.
    """

    def __init__(
        self, conversations: ConversationStore, owner: str, outbox: EventSink | None = None
    ) -> None:
        self._conversations = conversations
        self._outbox = outbox
        self._database = conversations.database
        self._seconds = conversations.settings.lease_seconds
        self._owner = owner
        self._exists = False
        """Whether the schema is known to have the tables."""

    @property
    def available(self) -> bool:
        """Whether the database's last response was successful."""
        return self._database.available

    async def begin(self, lease: RunLease, request: str, body: str) -> None:
        """Store a response that begins here.

        Args:
            lease: its first one.
            request: what another frontend needs to continue it.
            body: the response in JSON, without `output`.
        """
        if not await self.exists():
            raise unavailable()
        values = *lease.scope, lease.id, self._owner, self._seconds, request, body
        await self._fetch(statements.BEGIN_RUN, *values)

    async def renew(
        self, leases: Sequence[RunLease], pieces: Sequence[tuple[RunLease, EventPiece]]
    ) -> dict[UUID, bool]:
        """Renew leases, and add pieces to their responses, with one statement.

        Returns:
            For each lease that is still valid, whether its response is to be cancelled. Pieces of
            the others are not written.
        """
        values: list[object] = [self._owner, self._seconds]
        values += [[lease.scope.tenant for lease in leases], [lease.id for lease in leases]]
        values += [[lease.attempt for lease in leases]]
        values += [[lease.scope.tenant for lease, _ in pieces], [lease.id for lease, _ in pieces]]
        values += [[piece[at] for _, piece in pieces] for at in range(len(EventPiece._fields))]
        with failures():
            renew = partial(self._database.fetch, statements.RENEW, *values)
            rows = await with_months(renew, self._conversations.maintain)
        return {row["id"]: row["cancelled"] for row in rows}

    async def claim(self, most: int) -> list[ClaimedRun]:
        """Return responses whose lease has ended; it is this frontend's now."""
        rows = await self._fetch(statements.CLAIM, self._owner, self._seconds, most)
        return [
            ClaimedRun(
                RunLease(StateScope(row["tenant"], row["project"]), row["id"], row["attempt"]),
                *(row["cancelled"], row["request"], row["body"]),
            )
            for row in rows
        ]

    async def release(self, lease: RunLease, seconds: float = 0.0) -> None:
        """End a lease: any frontend may claim the response, after some seconds."""
        values = lease.scope.tenant, lease.id, self._owner, lease.attempt, seconds
        await self._fetch(statements.RELEASE_RUN, *values)

    async def end(self, lease: RunLease, piece: EventPiece | None, turn: Turn) -> bool:
        """Store a response that ended, with its last events; return whether the lease was valid.

        Nothing is written if it was not.

        Raises:
            BatonError: ABORTED: what it follows was deleted.
        """
        with failures():
            end = partial(self._end, lease, piece, turn)
            return await with_months(end, self._conversations.maintain)

    async def _end(self, lease: RunLease, piece: EventPiece | None, turn: Turn) -> bool:
        tenant = lease.scope.tenant
        async with self._database.connection() as connection, connection.transaction():
            held = tenant, lease.id, self._owner, lease.attempt
            if await connection.fetchval(statements.END_RUN, *held) is None:
                return False
            if piece is not None:
                await connection.execute(statements.WRITE_PIECE, tenant, lease.id, *piece)
            await self._conversations.write(lease.scope, turn, connection)
            if self._outbox is not None:
                kind, subject = f"response.{turn.status}", text_of(RESPONSE, turn.id)
                await self._outbox.add(connection, lease.scope, kind, subject)
        return True

    async def running(self, scope: StateScope, response: str) -> RunningResponse | None:
        """Return a response that runs, by its id as clients have it; None: there is none."""
        ident = parse_id(RESPONSE, response)
        rows = () if ident is None else await self._fetch(statements.RUNNING, *scope, ident)
        return RunningResponse(*rows[0]) if rows else None

    async def cancel(self, scope: StateScope, response: str) -> bool:
        """Tell the owner of a response to end it; return whether it runs."""
        ident = parse_id(RESPONSE, response)
        return bool(ident and await self._fetch(statements.CANCEL_RUN, *scope, ident))

    async def pieces_from(
        self, tenant: str, response: UUID, number: int
    ) -> list[tuple[int, bytes]]:
        """Return pieces with events from a sequence number on, in order; at most a few.

        Returns:
            The number of the last event of each, and its events.
        """
        values = tenant, response, number, _PIECES_AT_ONCE
        rows = await self._fetch(statements.PIECES_FROM, *values)
        return [(row["last"], row["events"]) for row in rows]

    async def outputs(self, lease: RunLease) -> list[tuple[int, bytes]]:
        """Return what was stored for continuing a response, in order.

        Returns:
            The number of the last event of each piece, and its output.
        """
        rows = await self._fetch(statements.OUTPUTS, lease.scope.tenant, lease.id)
        return [(row["last"], row["output"]) for row in rows]

    async def delete_events(self, tenant: str, response: UUID) -> None:
        """Delete the events of a response."""
        await self._fetch(statements.DELETE_EVENTS, tenant, response)

    async def exists(self) -> bool:
        """Return whether the schema has the tables: it may be that of an earlier release."""
        if not self._exists:
            with failures():
                rows = await self._database.fetch(statements.EXISTS)
            self._exists = rows[0]["exists"]
        return self._exists

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        if not await self.exists():
            return ()
        with failures():
            return await self._database.fetch(statement, *values)
