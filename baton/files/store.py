"""The store of files."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from datetime import datetime
from time import time
from typing import Any
from uuid import UUID

from baton.conversations.failures import failures, missing
from baton.conversations.ids import draw_block
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.files import statements
from baton.files.objects import PIECE_BYTES, FileObjects
from baton.files.records import FileDetails, StoredFile, parse_file
from baton.postgres.database import Database
from baton.settings import FileSettings
from baton.telemetry.logs import get_logger

FILES = "files are unavailable", "send the requests one by one"
"""What is unavailable, and what a client may do."""
_RETRY_SECONDS = 1.0
_SWEEP_SLACK = 60.0
"""Seconds beyond `files.upload_seconds` after which an upload belongs to no process."""

log = get_logger(__name__)


class FileStore:
    """Rows and objects of files. One per frontend, on the event loop.

    Errors, besides those that a method names: BatonError UNAVAILABLE, if the database or the place
    of objects is away.

    Args:
        database: with the rows.
        objects: the bytes.
        settings: bounds.
    """

    def __init__(self, database: Database, objects: FileObjects, settings: FileSettings) -> None:
        self._database = database
        self._objects = objects
        self.settings = settings

    async def write(
        self,
        scope: StateScope,
        pieces: AsyncIterable[bytes],
        details: Callable[[], FileDetails],
        most: int,
        *,
        limited: bool = True,
        ready: bool = True,
    ) -> StoredFile:
        """Write a file; if its pieces fail, nothing of it stays.

        Args:
            scope: whose.
            pieces: its bytes, in pieces of any size.
            details: called after the last piece.
            most: bytes that it may have.
            limited: whether its tenant must have so many bytes left.
            ready: whether clients see it at once; otherwise what makes it ready does so soon.

        Raises:
            BatonError: RATE_LIMITED: the tenant has too many bytes.
            Exception: what `pieces` and `details` raise.
        """
        ident = draw_block(int(time() * 1000))
        await self._begin(scope, ident, most, limited=limited)
        counted = _Counted(pieces)
        try:
            try:
                await self._objects.write(ident, counted.gathered())
            except self._objects.failures as error:
                raise self._unavailable(error) from error
            values = scope.tenant, ident, counted.size, counted.sha256
            said = details()
            rows = await self._fetch(statements.END_FILE, *values, *said, ready)
            if not rows:  # it took so long that it was swept, or its tenant was deleted
                await self._fetch(statements.ADD_ORPHAN, ident)
                raise BatonError(Reason.ABORTED, "the file was deleted while it was written")
        except BaseException:
            await self._drop(scope, ident)
            raise
        return StoredFile(*rows[0])

    async def get(self, scope: StateScope, file: str) -> StoredFile:
        """Return a file.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_file(file)
        rows = () if ident is None else await self._fetch(statements.GET_FILE, *scope, ident)
        if not rows:
            raise missing("file", file)
        return StoredFile(*rows[0])

    async def page(
        self, scope: StateScope, purpose: str, count: int, after: UUID | None, *, descending: bool
    ) -> list[StoredFile]:
        """Return the files of a project, from the one after `after`.

        Args:
            scope: whose.
            purpose: of these; empty: any.
            count: the most.
            after: None: from the first one.
            descending: the newest first.
        """
        statement = statements.LIST_DESCENDING if descending else statements.LIST_ASCENDING
        rows = await self._fetch(statement, *scope, purpose, after, count)
        return [StoredFile(*row) for row in rows]

    async def delete(self, scope: StateScope, file: str) -> None:
        """Delete a file.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_file(file)
        if ident is None or not await self._fetch(statements.DELETE_FILE, *scope, ident):
            raise missing("file", file)

    async def read(self, file: StoredFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes of a file from `start` to before `end`.

        Raises:
            BatonError: NOT_FOUND: it was deleted meanwhile.
        """
        try:
            async for piece in self._objects.read(file.id, start, end):
                yield piece
        except FileNotFoundError as error:
            raise missing("file", file.text) from error
        except self._objects.failures as error:
            raise self._unavailable(error) from error

    async def sweep(self) -> int:
        """Delete what has expired or was not finished, and objects without a row; return how many
        objects were deleted."""
        seconds = self.settings.upload_seconds + _SWEEP_SLACK
        await self._fetch(statements.SWEEP_FILES, seconds)
        deleted: list[UUID] = []
        try:
            for row in await self._fetch(statements.ORPHANS):
                await self._objects.delete(row["file"])
                deleted.append(row["file"])
        except self._objects.failures as error:
            raise self._unavailable(error) from error
        finally:
            if deleted:
                await self._fetch(statements.REMOVE_ORPHANS, deleted)
        return len(deleted)

    async def _begin(self, scope: StateScope, ident: UUID, most: int, *, limited: bool) -> None:
        tenant = scope.tenant
        with failures(FILES):
            async with self._database.connection() as connection, connection.transaction():
                if limited:
                    await connection.execute(statements.LOCK_TENANT, tenant)
                    used = await connection.fetchval(statements.USED_BYTES, tenant)
                    if used + most > self.settings.max_tenant_bytes:
                        raise BatonError(
                            Reason.RATE_LIMITED,
                            f"the files of the tenant have {used} bytes, and may have "
                            f"{self.settings.max_tenant_bytes} (files.max_tenant_bytes): delete "
                            "some, or let them expire",
                        )
                await connection.execute(statements.BEGIN_FILE, *scope, ident, most)

    async def _drop(self, scope: StateScope, ident: UUID) -> None:
        """Delete the row of what was not written; sweeps do it later if the database is away."""
        try:
            await self._fetch(statements.DROP_FILE, scope.tenant, ident)
        except BatonError as error:
            log.warning("files.upload.not_dropped", error=error.message)

    def _unavailable(self, error: Exception) -> BatonError:
        log.warning("files.objects.unavailable", error=str(error))
        return BatonError(
            Reason.UNAVAILABLE,
            "the bytes of files are unavailable now: retry later",
            retry_after=_RETRY_SECONDS,
        )

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        with failures(FILES):
            return await self._database.fetch(statement, *values)


class _Counted:
    """Gathers pieces to PIECE_BYTES, and counts and digests them."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> bytes:
        return self._digest.digest()

    async def gathered(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for piece in self._pieces:
            held += piece
            if len(held) >= PIECE_BYTES:
                yield self._count(bytes(held))
                held.clear()
        if held:
            yield self._count(bytes(held))

    def _count(self, piece: bytes) -> bytes:
        self.size += len(piece)
        self._digest.update(piece)
        return piece


def seconds_of(moment: datetime | None) -> int | None:
    """Return a moment in seconds since the Unix epoch."""
    return None if moment is None else int(moment.timestamp())
