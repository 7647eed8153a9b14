"""Which turns and completions of this process wait for the database."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from baton.conversations.completions.records import StoredCompletion
from baton.conversations.failures import COMPLETIONS, RESPONSES, unavailable
from baton.conversations.pending.record import PendingRecord
from baton.conversations.records import StateScope, Turn
from baton.spool.spool import Spool

WAIT_SECONDS = 1.0
"""How long a request waits for what it needs to be stored."""
RESERVED_BYTES = 64 * 1024
"""Space for the output of a running request, besides that for its body."""


class PendingWrites:
    """Keeps what could not be stored, and knows what waits. One per process, on the event loop.

    What an earlier process left is delivered too, and not known here.

    Args:
        spool: where it is kept.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._waiting: dict[UUID, set[str]] = {}
        """Records that wait, by what a later request may need: response, conversation."""
        self._stored = asyncio.Condition()

    @contextmanager
    def room(self, body_bytes: int) -> Iterator[None]:
        """Reserve space for what a request may leave.

        Raises:
            BatonError: UNAVAILABLE: there is none.
        """
        count = body_bytes + RESERVED_BYTES
        if not self._spool.reserve(count):
            raise unavailable(RESPONSES)
        try:
            yield
        finally:
            self._spool.release(count)

    async def add_turn(self, scope: StateScope, turn: Turn) -> None:
        """Keep a turn; return once it survives the end of this process."""
        needed = [turn.id]
        if turn.follows is not None and not turn.follows.hidden:
            needed.append(turn.follows.conversation)
        await self._add(PendingRecord(turn.id.hex, _now(), *scope, turn=turn), needed)

    async def add_completion(self, scope: StateScope, completion: StoredCompletion) -> None:
        """Keep a completion; the rest as of `add_turn`."""
        record = PendingRecord(completion.id.hex, _now(), *scope, completion=completion)
        await self._add(record, [completion.id])

    async def wait(self, needed: UUID | None, *, completion: bool = False) -> None:
        """Wait until nothing waits that has an id.

        Args:
            needed: of a response, a conversation, or a completion.
            completion: whether it is the last.

        Raises:
            BatonError: UNAVAILABLE: it still waits after WAIT_SECONDS.
        """
        if needed not in self._waiting:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS), self._stored:
                await self._stored.wait_for(lambda: needed not in self._waiting)
        if needed in self._waiting:
            raise unavailable(COMPLETIONS if completion else RESPONSES)

    async def done(self, ident: str) -> None:
        """Record that one is stored, or will never be."""
        for needed in [key for key, records in self._waiting.items() if ident in records]:
            self._waiting[needed].discard(ident)
            if not self._waiting[needed]:
                del self._waiting[needed]
        async with self._stored:
            self._stored.notify_all()

    async def _add(self, record: PendingRecord, needed: list[UUID]) -> None:
        for ident in needed:
            self._waiting.setdefault(ident, set()).add(record.id)
        written = asyncio.Event()
        self._spool.add(record, written.set)
        await written.wait()


def _now() -> int:
    return int(time.time() * 1000)
