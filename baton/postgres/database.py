"""A process's connections to Postgres. Startup neither makes nor awaits one.

While the database is unavailable, or has an unsupported schema, each use fails immediately with
the reason, and one task retries the connection.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from baton.postgres.budget import seconds_left, wait_budget
from baton.postgres.connecting import (
    DatabaseUnavailableError,
    SlowStatementError,
    StateError,
    connected,
    driver,
    errors_of,
    place,
)
from baton.postgres.metrics import AVAILABLE, FAILURES
from baton.postgres.pool import DatabasePool
from baton.postgres.revisions import USAGE
from baton.postgres.schema import read_problem
from baton.process.background import start_background
from baton.rpc.timing.backoff import Backoff
from baton.settings import StateSettings
from baton.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncpg

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 1.0
"""Requests that need the database are rejected until a retry succeeds."""
START_SECONDS = 2.0
"""The longest that a process waits at its start to learn whether the database is there."""
CHECK_SECONDS = 15.0
"""Time between two checks of a database without failures."""
IDLE_SECONDS = 300.0
"""Time after which an unused connection is closed."""
BUDGET_SECONDS = 0.4
"""What a request may wait beside the time of one statement."""

log = get_logger(__name__)


class Database:
    """Runs statements in Postgres. Lives on the event loop.

    Entering does not connect; a background task does, and retries with growing, random delays.
    Leaving closes the connections.

    Args:
        settings: with a URL.
        pool: its name in metrics.
        needs: the oldest revision of the schema that it can use.
        session: a statement that each connection runs before others do; empty: none.

    Raises:
        StartupError: asyncpg is not installed.
    """

    def __init__(
        self,
        settings: StateSettings,
        pool: str = "usage",
        needs: str = USAGE,
        session: str = "",
    ) -> None:
        self._settings = settings
        self._name = pool
        self._needs = needs
        self._asyncpg = driver()
        self._pool = DatabasePool(settings, session)
        self._problem = f"{place(settings)} is not connected yet"
        self._told = ""
        """Last state that was logged."""
        self._available = asyncio.Event()
        self._tried = asyncio.Event()
        self._failed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Database":
        AVAILABLE.labels(self._name).set(0)
        self._task = start_background(self._keep(), f"state-database-{self._name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._pool.close()

    @property
    def available(self) -> bool:
        """Whether its last response was successful, and its schema is that of this release."""
        return self._available.is_set()

    @property
    def problem(self) -> str:
        """Why it is not available, as a sentence without secrets; empty if it is."""
        return self._problem

    async def wait_available(self, seconds: float) -> None:
        """Wait until it is available.

        Raises:
            DatabaseUnavailableError: it is not, after that time; the message gives the reason.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._available.wait()
        except TimeoutError:
            raise DatabaseUnavailableError(self._problem) from None

    async def wait_tried(self) -> None:
        """Return once the first attempt to reach it has ended, or after `START_SECONDS`.

        A process that serves before that rejects what a database that is there would answer.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self._tried.wait()

    def budget(self) -> AbstractContextManager[None]:
        """Bound what a request waits in a block: `state.statement_seconds` and BUDGET_SECONDS."""
        return wait_budget(self._settings.statement_seconds + BUDGET_SECONDS)

    async def fetch(
        self, query: str, *values: object, seconds: float | None = None
    ) -> "list[asyncpg.Record]":
        """Return the rows of a statement.

        Args:
            query: with `$1` and so on for values.
            values: as asyncpg takes them.
            seconds: limit for it and the wait for a connection; None: state.statement_seconds, or
                what is left of a budget.

        Raises:
            RefusedError: Postgres rejected the values.
            DatabaseUnavailableError: the database is not available, or did not respond in time.
            StateError: too many wait, or the statement failed.
        """
        rows: list[asyncpg.Record] = await self._run("fetch", query, values, seconds)
        return rows

    async def execute(self, query: str, *values: object, seconds: float | None = None) -> str:
        """Run a statement; return Postgres' command tag, such as `INSERT 0 5`.

        Arguments and errors are those of `fetch`.
        """
        return str(await self._run("execute", query, values, seconds))

    @asynccontextmanager
    async def connection(self, seconds: float | None = None) -> "AsyncIterator[asyncpg.Connection]":
        """Lend a connection, for several statements or a transaction.

        Args:
            seconds: limit for all of it; None: as of `fetch`.

        Raises:
            RefusedError: Postgres rejected the values of a statement.
            DatabaseUnavailableError: the database is not available, or did not respond in time.
            StateError: too many wait, or a statement failed.
        """
        self._check_available()
        with self._errors():
            connection, left = await self._borrow(seconds)
            try:
                async with asyncio.timeout(left):
                    yield connection
            except BaseException as error:
                self._take_back(connection, error)
                raise
            self._pool.release(connection)

    async def _run(
        self, method: str, query: str, values: tuple[object, ...], seconds: float | None
    ) -> Any:
        """Return what a method of a connection does. Each stored response waits for several, so
        that what does not fail enters no context managers."""
        self._check_available()
        try:
            connection, left = await self._borrow(seconds)
            try:
                found = await getattr(connection, method)(query, *values, timeout=left)
            except BaseException as error:
                self._take_back(connection, error)
                raise
        except Exception:
            with self._errors():
                raise
        self._pool.release(connection)
        return found

    async def _borrow(self, seconds: float | None) -> "tuple[asyncpg.Connection, float]":
        """Return a connection, which the caller gives back, and the time left for its use."""
        if seconds is None:
            seconds = min(self._settings.statement_seconds, seconds_left())
            if seconds <= 0:
                raise TimeoutError
        if (connection := self._pool.take()) is not None:
            return connection, seconds
        began = time.monotonic()
        async with asyncio.timeout(seconds):
            connection = await self._pool.wait()
        return connection, seconds + began - time.monotonic()

    def _take_back(self, connection: "asyncpg.Connection", error: BaseException) -> None:
        """Give a connection back whose use failed."""
        if isinstance(error, self._asyncpg.PostgresError):
            self._pool.release(connection)  # The statement has ended.
        else:
            self._pool.recover(connection)

    def _check_available(self) -> None:
        if not self.available:
            raise DatabaseUnavailableError(self._problem)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Note failures.

        Raises:
            StateError: as `errors_of`.
        """
        try:
            with errors_of(self._settings):
                yield
        except StateError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A rollback failed, and took the place of the cancellation that it followed.
                raise asyncio.CancelledError from error
            if isinstance(error, DatabaseUnavailableError):
                FAILURES.labels(self._name).inc()
                if isinstance(error, SlowStatementError):
                    # Others go on, unless the database does not respond to a probe either.
                    self._failed.set()
                else:
                    self._fail(str(error))
            raise

    def _fail(self, problem: str) -> None:
        """Mark the database as unavailable until it has responded again."""
        if problem != self._told:
            log.warning("state.database.unavailable", error=problem)
        self._problem = self._told = problem
        self._available.clear()
        AVAILABLE.labels(self._name).set(0)
        self._failed.set()

    def _answered(self) -> None:
        if not self.available:
            log.info("state.database.recovered" if self._told else "state.database.available")
        self._problem = self._told = ""
        AVAILABLE.labels(self._name).set(1)
        self._available.set()

    async def _keep(self) -> None:
        """Try the database until it is available, and check periodically that it still is."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            if not self.available:
                # Connections to a server that is gone, or is now a replica, are useless.
                self._pool.expire()
            self._failed.clear()
            problem = await self._probe()
            if problem:
                self._fail(problem)
            else:
                self._answered()
            self._tried.set()
            if problem:
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                await self._wait_failure(CHECK_SECONDS)
                self._pool.close_idle(IDLE_SECONDS)

    async def _wait_failure(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._failed.wait()
        except TimeoutError:
            return

    async def _probe(self) -> str:
        """Return why the database cannot be used; empty: it can.

        The connection is not one of the pool, all of which may be busy.
        """
        settings = self._settings
        try:
            with errors_of(settings):
                async with asyncio.timeout(settings.connect_seconds), connected(settings) as probe:
                    if await probe.fetchval("select pg_is_in_recovery()"):
                        return f"{place(settings)} is a read-only replica"
                    problem = await read_problem(probe, self._needs)
        except StateError as error:
            return str(error)
        return f"{place(self._settings)}: {problem}" if problem else ""


@asynccontextmanager
async def open_database(settings: StateSettings) -> AsyncIterator[Database | None]:
    """Open a process's database until the block ends; None if none is configured.

    Raises:
        StartupError: asyncpg is not installed.
    """
    if not settings.url.get_secret_value():
        yield None
        return
    async with Database(settings) as database:
        yield database
