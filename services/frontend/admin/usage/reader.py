"""Asks Postgres for usage, within bounds, and tells why it cannot."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from baton.errors import BatonError, Reason
from baton.postgres.connecting import StateError
from baton.postgres.database import Database
from baton.request.prices import Price, PriceTable
from baton.telemetry.logs import get_logger
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.table import Freshness, TooLongError, UsageTable
from services.frontend.admin.objects import Object, RawBody

QUERY_SECONDS = 4.0
"""For one question, waiting for others included."""
MAX_GROUPS = 20_000
"""Of one answer."""
MAX_AT_ONCE = 16
"""Questions, with those that wait for a connection; more are refused."""
_RETRY_SECONDS = 1.0

T = TypeVar("T")

log = get_logger(__name__)


class UsageReader:
    """Answers questions about usage records. One per frontend.

    Args:
        database: that records are brought to; None: there is none.
        provider_prices: of a provider to compare with.
        connections: that the database has; half of them are used at once.
    """

    def __init__(
        self, database: Database | None, provider_prices: Mapping[str, Price], connections: int
    ) -> None:
        self._table = None if database is None else UsageTable(database, max(1, connections // 2))
        self.provider = PriceTable(provider_prices)
        self.compares = bool(provider_prices)
        """There are prices to compare with."""
        self._running = 0

    async def groups(self, question: Question) -> list[UsageGroup]:
        """Return the groups that answer a question, by time: MAX_GROUPS + 1 of them at most.

        Raises:
            BatonError: UNIMPLEMENTED, there is no database; UNAVAILABLE; DEADLINE; OVERLOADED.
        """
        table = self._asked()
        with self._one_more():
            return await _told(table.read(question, QUERY_SECONDS, MAX_GROUPS + 1))

    async def report(
        self, question: Question, scope: Question
    ) -> tuple[list[UsageGroup], Freshness]:
        """Return the same, and how new the records of a scope are. Errors: as of `groups`."""
        table = self._asked()
        with self._one_more():
            asked = table.report(question, scope, QUERY_SECONDS, MAX_GROUPS + 1)
            return await _told(asked)

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        """Count a question; those beyond the bound are refused, so that administration goes on."""
        if self._running >= MAX_AT_ONCE:
            raise BatonError(
                Reason.OVERLOADED,
                f"{MAX_AT_ONCE} usage queries are already running; retry later",
                retry_after=_RETRY_SECONDS,
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def _asked(self) -> UsageTable:
        if self._table is None:
            raise BatonError(
                Reason.UNIMPLEMENTED,
                "usage needs a database, and none is configured: set state.url (BATON_STATE_URL) "
                "of the frontends, and create its schema with `baton db upgrade`",
            )
        return self._table


async def encoded(make: Callable[[], Object]) -> RawBody:
    """Return an answer as JSON, made and written on a thread: the event loop has no time for large
    ones."""

    def run() -> bytes:
        return msgspec.json.encode(make())

    return RawBody(await asyncio.to_thread(run), b"application/json")


async def _told(answer: Awaitable[T]) -> T:
    """Return an answer of the database, or raise what the caller is told instead."""
    try:
        return await answer
    except TooLongError as error:
        raise BatonError(
            Reason.DEADLINE,
            f"the query took longer than {QUERY_SECONDS:g} s: select a shorter time range or "
            "fewer projects",
        ) from error
    except StateError as error:
        log.warning("organization.usage.unavailable", error=str(error))
        raise BatonError(
            Reason.UNAVAILABLE,
            "the usage database (state.url) is unreachable",
            retry_after=_RETRY_SECONDS,
        ) from error
