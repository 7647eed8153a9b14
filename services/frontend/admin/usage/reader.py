"""Queries usage from Postgres, within bounds, and maps its failures to errors."""

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
"""Per query, including the wait for other queries."""
MAX_GROUPS = 20_000
"""Most groups in one result."""
MAX_AT_ONCE = 16
"""Most concurrent queries, including those waiting for a connection; more are rejected."""
_RETRY_SECONDS = 1.0

T = TypeVar("T")

log = get_logger(__name__)


class UsageReader:
    """Answers queries about usage records. One per frontend.

    Args:
        database: where records are stored; None: there is none.
        provider_prices: of a provider to compare with.
        connections: of the database; half of them are used at the same time.
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
        """Return the groups of a query, by time: MAX_GROUPS + 1 of them at most.

        Raises:
            BatonError: UNIMPLEMENTED: there is no database; UNAVAILABLE; DEADLINE; OVERLOADED.
        """
        table = self._asked()
        with self._one_more():
            return await _told(table.read(question, QUERY_SECONDS, MAX_GROUPS + 1))

    async def report(
        self, question: Question, scope: Question
    ) -> tuple[list[UsageGroup], Freshness]:
        """Return the groups, and how recent the records of a scope are. Errors: as for `groups`."""
        table = self._asked()
        with self._one_more():
            asked = table.report(question, scope, QUERY_SECONDS, MAX_GROUPS + 1)
            return await _told(asked)

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        """Count a query; those beyond the bound are rejected, to protect other administration."""
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
    """Return a response as JSON, built and encoded on a thread: large ones would block the event
    loop."""

    def run() -> bytes:
        return msgspec.json.encode(make())

    return RawBody(await asyncio.to_thread(run), b"application/json")


async def _told(answer: Awaitable[T]) -> T:
    """Return a result of the database, or raise the error for the caller."""
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
