"""A file that grows by whole batches."""

import os
from pathlib import Path


class AppendFile:
    """A new file to which batches are appended, each completely or not at all. Blocks; one thread.

    Args:
        path: path of the file, which must not exist.
        mode: permissions of the file.
        sync: force each batch to the disk.
    """

    def __init__(self, path: Path, mode: int, *, sync: bool) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, mode)
        self._sync = sync
        self.size = 0
        """Bytes of the complete batches."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._fd < 0

    def append(self, data: bytes) -> None:
        """Append a batch.

        Raises:
            OSError: it was not stored. A partial write is truncated; if that fails as well, the
                file is closed and may end with a part of the batch.
        """
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
            if self._sync:
                os.fdatasync(self._fd)
        except OSError:
            self._truncate()
            raise
        self.size += len(data)

    def close(self) -> None:
        """Close the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _truncate(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
            if self._sync:
                os.fdatasync(self._fd)
        except OSError:
            self.close()
