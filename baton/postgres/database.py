"""A process's connections to Postgres. None is made before the process serves, none is waited for.

While the database is away, or has a schema that this release does not know, each use fails at once
with the reason, and one task tries it again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from baton.postgres.connecting import (
    DatabaseUnavailableError,
    StateError,
    driver,
    errors_of,
    options,
    place,
)
from baton.postgres.metrics import AVAILABLE, FAILURES
from baton.postgres.revisions import problem_of
from baton.postgres.schema import read_revision
from baton.process.background import start_background
from baton.rpc.timing.backoff import Backoff
from baton.settings import StateSettings
from baton.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncpg

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 5.0
CHECK_SECONDS = 15.0
"""Between two looks at a database that nothing fails of."""
_CLOSE_SECONDS = 2.0

log = get_logger(__name__)


class Database:
    """Runs statements in Postgres. Lives on the event loop.

    Entering connects to nothing; a background task does, again and again with growing, random
    delays. Leaving closes the connections.

    Args:
        settings: with a URL.

    Raises:
        StartupError: asyncpg is not installed.
    """

    def __init__(self, settings: StateSettings) -> None:
        self._settings = settings
        self._asyncpg = driver()
        self._pool: asyncpg.Pool | None = None
        self._waiting = 0
        self._problem = f"{place(settings)} is not connected yet"
        self._told = ""
        """What the log says of it."""
        self._available = asyncio.Event()
        self._failed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Database":
        # Nothing is connected yet: there is no least number of connections.
        self._pool = await self._asyncpg.create_pool(
            **options(self._settings), min_size=0, max_size=self._settings.connections
        )
        AVAILABLE.set(0)
        self._task = start_background(self._keep(self._pool), "state-database")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._pool is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._pool.close()
            except (TimeoutError, OSError):
                self._pool.terminate()

    @property
    def available(self) -> bool:
        """Whether it answered last, and has the schema of this release."""
        return self._available.is_set()

    @property
    def problem(self) -> str:
        """Why it is not available, as a sentence without a secret; empty while it is."""
        return self._problem

    async def wait_available(self, seconds: float) -> None:
        """Wait until it is available.

        Raises:
            DatabaseUnavailableError: it is not, after that time; the text says why.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._available.wait()
        except TimeoutError:
            raise DatabaseUnavailableError(self._problem) from None

    async def fetch(
        self, query: str, *values: object, seconds: float | None = None
    ) -> "list[asyncpg.Record]":
        """Return the rows of a statement.

        Args:
            query: with `$1` and so on for values.
            values: as asyncpg takes them.
            seconds: for it and the wait for a connection; None: state.statement_seconds.

        Raises:
            RefusedError: Postgres refused the values.
            DatabaseUnavailableError: the database is not available, or did not answer in time.
            StateError: too many wait, or the statement failed.
        """
        async with self.connection(seconds) as connection:
            rows: list[asyncpg.Record] = await connection.fetch(query, *values)
            return rows

    async def execute(self, query: str, *values: object, seconds: float | None = None) -> str:
        """Run a statement; return what Postgres says of it, such as `INSERT 0 5`.

        Arguments and errors are those of `fetch`.
        """
        async with self.connection(seconds) as connection:
            return str(await connection.execute(query, *values))

    @asynccontextmanager
    async def connection(self, seconds: float | None = None) -> "AsyncIterator[asyncpg.Connection]":
        """Lend a connection, for several statements or a transaction.

        Args:
            seconds: for all of it; None: state.statement_seconds.

        Raises:
            RefusedError: Postgres refused the values of a statement.
            DatabaseUnavailableError: the database is not available, or did not answer in time.
            StateError: too many wait, or a statement failed.
        """
        if not self.available:
            raise DatabaseUnavailableError(self._problem)
        try:
            async with self._lent(seconds or self._settings.statement_seconds) as connection:
                yield connection
        except DatabaseUnavailableError as error:
            FAILURES.inc()
            self._fail(str(error))
            raise

    @asynccontextmanager
    async def _lent(self, seconds: float) -> "AsyncIterator[asyncpg.Connection]":
        """Lend a connection, whether the database is known to be available or not."""
        pool = self._pool
        if pool is None:
            raise RuntimeError("the database was not entered")
        with errors_of(self._settings):
            async with asyncio.timeout(seconds):
                connection = await self._acquire(pool)
                try:
                    yield connection
                finally:
                    # Cancels what still runs, and gives it up if that takes too long.
                    await pool.release(connection, timeout=_CLOSE_SECONDS)

    async def _acquire(self, pool: "asyncpg.Pool") -> "asyncpg.Connection":
        if self._waiting >= self._settings.max_waiting and pool.get_idle_size() == 0:
            raise StateError(
                f"{place(self._settings)}: {self._waiting} statements are waiting for a connection"
            )
        self._waiting += 1
        try:
            return await pool.acquire()
        finally:
            self._waiting -= 1

    def _fail(self, problem: str) -> None:
        """Have no more asked of it until it has answered again."""
        if problem != self._told:
            log.warning("state.database.unavailable", error=problem)
        self._problem = self._told = problem
        self._available.clear()
        AVAILABLE.set(0)
        self._failed.set()

    def _answered(self) -> None:
        if not self.available:
            log.info("state.database.recovered" if self._told else "state.database.available")
        self._problem = self._told = ""
        AVAILABLE.set(1)
        self._available.set()

    async def _keep(self, pool: "asyncpg.Pool") -> None:
        """Try the database until it is available, and look again and again whether it still is."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            if not self.available:
                # What was connected to a server that is gone, or is a replica now, is of no use.
                await pool.expire_connections()
            self._failed.clear()
            problem = await self._probe()
            if problem:
                self._fail(problem)
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                self._answered()
                await self._wait_failure(CHECK_SECONDS)

    async def _wait_failure(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._failed.wait()
        except TimeoutError:
            return

    async def _probe(self) -> str:
        """Return why the database cannot be used; empty: it can."""
        try:
            async with self._lent(self._settings.connect_seconds) as connection:
                if await connection.fetchval("select pg_is_in_recovery()"):
                    return f"{place(self._settings)} is a read-only replica"
                problem = problem_of(await read_revision(connection))
        except StateError as error:
            return str(error)
        return f"{place(self._settings)}: {problem}" if problem else ""


@asynccontextmanager
async def open_database(settings: StateSettings) -> AsyncIterator[Database | None]:
    """Have a database meanwhile; None where none is set.

    Raises:
        StartupError: asyncpg is not installed.
    """
    if not settings.url.get_secret_value():
        yield None
        return
    async with Database(settings) as database:
        yield database
