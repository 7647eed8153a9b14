"""A directory of files with a usage record as JSON in each line.

Every delivering process writes separate files: `usage-20261123T021500-9f3a1c22-0001.jsonl`, named
for the time when it started, sorted by start time, each followed by the next once it is long
enough. Nothing here removes a file: that is up to the consumer. A crash may leave an incomplete
last line, and records that are in two files; `baton.usage.report.files` skips both.
"""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import gmtime, strftime

from baton.host.append_file import AppendFile
from baton.process.io_thread import IoThread
from baton.spool.sink import SinkError

PATTERN = "usage-*.jsonl"
_CLOSE_SECONDS = 1.0


class JsonlSink:
    """Appends records to files. Blocking calls run on a separate thread.

    Args:
        directory: directory of the files; created if it is missing.
        file_bytes: size after which a new file is started.
        sync: force each batch to the disk before it counts as stored.
    """

    name = "jsonl"
    local = True

    def __init__(self, directory: Path, file_bytes: int, *, sync: bool = True) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._sync = sync
        self._thread = IoThread("usage-jsonl")
        self._run = f"{strftime('%Y%m%dT%H%M%S', gmtime())}-{secrets.token_hex(4)}"
        self._number = 0
        self._file: AppendFile | None = None

    async def write(self, records: Sequence[bytes]) -> None:
        """Append records; they are stored once the file is on the disk.

        Raises:
            SinkError: the disk did not accept all of them. Partial writes are truncated.
        """
        try:
            await self._thread.call(partial(self._append, b"\n".join([*records, b""])))
        except OSError as error:
            raise SinkError(f"{self._directory}: {error.strerror}") from error

    async def close(self) -> None:
        """Close the file."""
        self._thread.submit(self._closing)
        await self._thread.stop(_CLOSE_SECONDS)

    def _append(self, data: bytes) -> None:
        """Append data; on the thread."""
        file = self._file
        if file is None or file.closed or file.size >= self._file_bytes:
            file = self._next()
        file.append(data)

    def _next(self) -> AppendFile:
        self._close()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._number += 1
        path = self._directory / f"usage-{self._run}-{self._number:04}.jsonl"
        self._file = AppendFile(path, 0o640, sync=self._sync)
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _closing(self) -> Callable[[], None]:
        self._close()
        return _nothing


def _nothing() -> None:
    """Do nothing: it is closed."""
