"""The bytes of files, in a directory or in a bucket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import UUID

from baton.settings import StartupError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PIECE_BYTES = 1024 * 1024
"""Of what is written and read at once."""
_PART_BYTES = 5 * PIECE_BYTES
"""The smallest part that buckets take."""
_PARTS_AT_ONCE = 2


class FileObjects:
    """Writes, reads and deletes objects, which are named by the ids of files.

    All work is on obstore's threads.

    Args:
        url: as in `files.url`.

    Raises:
        StartupError: obstore rejects the URL, or the directory cannot be made.
    """

    def __init__(self, url: str) -> None:
        import obstore  # commands that use no files start without it
        from obstore.store import from_url

        split = urlsplit(url)
        self._directory = Path(unquote(split.path)) if split.scheme == "file" else None
        try:
            if self._directory is not None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store: ObjectStore = from_url(url)
        except (OSError, ValueError, obstore.exceptions.BaseError) as error:
            raise StartupError(f"files.url {url!r} cannot be used: {error}") from error
        self._obstore = obstore
        self.failures = (OSError, obstore.exceptions.BaseError)
        """What these methods raise if the directory or the bucket fails."""

    async def write(self, file: UUID, pieces: AsyncIterator[bytes]) -> None:
        """Write an object from pieces; if one fails, nothing of it stays.

        Raises:
            Exception: that of `pieces`, or one of `failures`.
        """
        await self._obstore.put_async(
            self._store,
            file.hex,
            pieces,
            chunk_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    async def read(self, file: UUID, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes of an object from `start` to before `end`; raises one of `failures`."""
        if start == end:
            return
        options = {"range": (start, end)}
        found = await self._obstore.get_async(self._store, file.hex, options=options)  # type: ignore[arg-type]
        async for piece in found.stream(min_chunk_size=PIECE_BYTES):
            yield bytes(piece)

    async def delete(self, file: UUID) -> None:
        """Delete an object, and what a killed process left of it; raises one of `failures`."""
        with suppress(FileNotFoundError):
            await self._obstore.delete_async(self._store, file.hex)
        if self._directory is not None:
            await asyncio.to_thread(self._delete_unfinished, self._directory, file)

    @staticmethod
    def _delete_unfinished(directory: Path, file: UUID) -> None:
        """Delete what obstore stages until an object is whole."""
        for path in directory.glob(f"{file.hex}#*"):
            path.unlink(missing_ok=True)
