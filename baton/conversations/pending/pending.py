"""Which turns and completions of this process wait for the database."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from baton.conversations.completions.records import StoredCompletion
from baton.conversations.failures import COMPLETIONS, RESPONSES, unavailable
from baton.conversations.pending.notices import PendingNotices
from baton.conversations.pending.record import PendingRecord
from baton.conversations.records import StateScope, Turn
from baton.postgres.budget import seconds_left
from baton.spool.spool import Spool

WAIT_SECONDS = 0.8
"""How long a request waits for what it needs to be stored."""
RESERVED_BYTES = 64 * 1024
"""Space for the output of a running request, besides that for its body."""


class PendingWrites:
    """Keeps what could not be stored, and knows what waits. One per process, on the event loop.

    What an earlier process left is delivered too, and known here if its notices are.

    Args:
        spool: where it is kept.
        can_store: returns whether the database responds; nothing waits for what it cannot store.
        notices: what waits at other processes; None: that is not known.
    """

    def __init__(
        self,
        spool: Spool,
        can_store: Callable[[], bool],
        notices: PendingNotices | None = None,
    ) -> None:
        self._spool = spool
        self._can_store = can_store
        self._notices = notices
        self._waiting: dict[UUID, set[str]] = {}
        """Records that wait, by what a later request may need."""
        self._changed = asyncio.Event()

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
        await self._add(PendingRecord(turn.id.hex, _now(), *scope, turn=turn))

    async def add_completion(self, scope: StateScope, completion: StoredCompletion) -> None:
        """Keep a completion; the rest as of `add_turn`."""
        await self._add(PendingRecord(completion.id.hex, _now(), *scope, completion=completion))

    async def wait(self, needed: UUID | None, *, completion: bool = False) -> None:
        """Wait until nothing waits that has an id, at any process, unless the database is away.

        Args:
            needed: of a response, a conversation, or a completion.
            completion: whether it is the last.

        Raises:
            BatonError: UNAVAILABLE: it still waits after WAIT_SECONDS, or at the end of a budget.
        """
        if needed is None or not self._waits(needed):
            return
        with suppress(TimeoutError):
            seconds = min(WAIT_SECONDS, seconds_left())
            async with asyncio.timeout(seconds if self._can_store() else 0):
                while needed in self._waiting:
                    await self._changed.wait()
                while self._notices is not None and self._notices.knows(needed.hex):
                    await self._notices.wait_changed()
        if self._waits(needed):
            raise unavailable(COMPLETIONS if completion else RESPONSES)

    def done(self, record: PendingRecord) -> None:
        """Record that one is stored, or will never be."""
        for needed in record.needed:
            records = self._waiting.get(needed, set())
            records.discard(record.id)
            if not records:
                self._waiting.pop(needed, None)
        self._changed.set()
        self._changed = asyncio.Event()
        if self._notices is not None:
            self._notices.remove(record.id, _texts(record))

    def _waits(self, needed: UUID) -> bool:
        elsewhere = self._notices is not None and self._notices.knows(needed.hex)
        return needed in self._waiting or elsewhere

    async def _add(self, record: PendingRecord) -> None:
        for needed in record.needed:
            self._waiting.setdefault(needed, set()).add(record.id)
        written = asyncio.Event()
        self._spool.add(record, written.set)
        await written.wait()
        if self._notices is None:
            return
        await self._notices.add(record.id, _texts(record))
        if not any(record.id in self._waiting.get(one, ()) for one in record.needed):
            self._notices.remove(record.id, _texts(record))  # it was stored meanwhile


def _texts(record: PendingRecord) -> list[str]:
    return [needed.hex for needed in record.needed]


def _now() -> int:
    return int(time.time() * 1000)
