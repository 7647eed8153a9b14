"""Connections of a process to one database.

asyncpg's own pool costs as much per statement as the statement does: a proxy per use, a task per
release, and timers. Baton's statements leave nothing behind on a connection, so that the next one
can follow at once.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from baton.postgres.connecting import StateError, driver, errors_of, options, place
from baton.process.background import start_background
from baton.settings import StateSettings
from baton.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncpg

CLOSE_SECONDS = 2.0
"""Time to close a connection, or to make it usable again."""

log = get_logger(__name__)


class DatabasePool:
    """Opens connections when they are needed, at most `state.connections`. Lives on the event loop.

    Args:
        settings: of the database.
        session: a statement that each connection runs before others do; empty: none.
    """

    def __init__(self, settings: StateSettings, session: str = "") -> None:
        self._settings = settings
        self._connect = driver().connect
        self._options = options(settings)
        self._session = session
        self._idle: deque[tuple[asyncpg.Connection, float]] = deque()
        """With the time of the last use; the last one was used last."""
        self._opened: set[asyncpg.Connection] = set()
        self._opening = 0
        self._expired: set[asyncpg.Connection] = set()
        """Those in use that are not used again."""
        self._waiting: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        """They get a connection, or None: space to open another one."""
        self._recovering: set[asyncio.Task[None]] = set()

    def take(self) -> "asyncpg.Connection | None":
        """Return an idle connection; None: there is none. The caller gives it back."""
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._discard(connection)
        return None

    async def wait(self) -> "asyncpg.Connection":
        """Return a connection, once one is given back or opened. The caller gives it back.

        Raises:
            StateError: too many wait already.
            OSError, TimeoutError, asyncpg.PostgresError: as of `asyncpg.connect`.
        """
        if (connection := self.take()) is not None:
            return connection
        if not self._full:
            self._opening += 1
        elif (connection := await self._wait_turn()) is not None:
            return connection
        try:
            connection = await self._open()
        except BaseException:
            self._opening -= 1
            self._invite()
            raise
        self._opening -= 1
        self._opened.add(connection)
        return connection

    def release(self, connection: "asyncpg.Connection") -> None:
        """Take back a connection whose statements have ended."""
        if connection.is_closed() or connection in self._expired:
            self._discard(connection)
        elif connection.is_in_transaction():
            self.recover(connection)
        elif not (self._waiting and self._hand_over(connection)):
            self._idle.append((connection, asyncio.get_running_loop().time()))

    def recover(self, connection: "asyncpg.Connection") -> None:
        """Take back a connection whose statement was cut off.

        It is used again once Postgres has cancelled the statement, and closed if that takes longer
        than the caller may wait.
        """
        task = start_background(self._recover(connection), "state-connection-recovery")
        self._recovering.add(task)
        task.add_done_callback(self._recovering.discard)

    def close_idle(self, seconds: float = 0.0) -> None:
        """Close connections that were not used for some time."""
        latest = asyncio.get_running_loop().time() - seconds
        while self._idle and self._idle[0][1] <= latest:
            self._discard(self._idle.popleft()[0])

    def expire(self) -> None:
        """Close all connections; those in use once they are given back."""
        self.close_idle()
        self._expired |= self._opened

    async def close(self) -> None:
        """Close all connections, also those in use."""
        for task in self._recovering:
            task.cancel()
        if self._recovering:
            await asyncio.wait(list(self._recovering))
        closing = [connection.close(timeout=CLOSE_SECONDS) for connection in self._opened]
        for error in await asyncio.gather(*closing, return_exceptions=True):
            if error is not None:
                log.debug("state.connection.dropped", error=str(error))
        self._idle.clear()
        self._opened.clear()

    @property
    def _full(self) -> bool:
        return len(self._opened) + self._opening >= self._settings.connections

    async def _open(self) -> "asyncpg.Connection":
        connection = await self._connect(**self._options)
        try:
            await self._begin(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _begin(self, connection: "asyncpg.Connection") -> None:
        if self._session:
            await connection.execute(self._session)

    async def _wait_turn(self) -> "asyncpg.Connection | None":
        if len(self._waiting) >= self._settings.max_waiting:
            raise StateError(
                f"{place(self._settings)}: {len(self._waiting)} statements are waiting for a "
                "connection"
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # It was this one's turn already.
                connection = turn.result()
                if connection is None:
                    self._opening -= 1
                    self._invite()
                else:
                    self.release(connection)
            raise

    def _hand_over(self, connection: "asyncpg.Connection | None") -> bool:
        """Return whether one that waits has got the connection, or the space for another one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled
                turn.set_result(connection)
                return True
        return False

    def _invite(self) -> None:
        """Let one that waits open a connection, in a space that is its own from now on."""
        if not self._full and self._hand_over(None):
            self._opening += 1

    def _discard(self, connection: "asyncpg.Connection") -> None:
        connection.terminate()
        self._opened.discard(connection)
        self._expired.discard(connection)
        self._invite()

    async def _recover(self, connection: "asyncpg.Connection") -> None:
        try:
            with errors_of(self._settings):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await connection.reset()
                    await self._begin(connection)
        except StateError as error:
            log.debug("state.connection.dropped", error=str(error))
            self._discard(connection)
        except asyncio.CancelledError:
            self._discard(connection)
            raise
        else:
            self.release(connection)
