"""Proof that a writer is dead: a file next to the arena, locked by the writer while it lives."""

import os
import re
import secrets
from pathlib import Path

from baton.host.file_locks import create_locked, lock_is_free

LOCK_SUFFIX = ".writer"
_NAME = re.compile(r"baton-kv-[0-9a-f]{1,64}\.writer")


class WriterLock:
    """A writer's lock, taken once at the start and held until every holder has released it.

    Belongs to one process, on its asyncio loop. The last holder's release removes the file.

    Raises:
        OSError: the directory is not writable.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"baton-kv-{secrets.token_hex(8)}{LOCK_SUFFIX}"
        self._file = create_locked(self.path)
        self._holders = 1

    def retain(self) -> None:
        """Add a holder: another part of the process that may write to the arena."""
        self._holders += 1

    def release(self) -> None:
        """Remove a holder, which no longer writes."""
        self._holders -= 1
        if self._holders == 0:
            self.path.unlink(missing_ok=True)
            os.close(self._file)


class WriterLockProbe:
    """The store's view of a writer's lock: reports whether the writer lives.

    Raises:
        ValueError: the name is not a writer's lock, the file does not exist, or it is not locked.
    """

    def __init__(self, directory: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError("writer_lock is not the name of a writer's lock file")
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(directory / name, flags)
        except OSError as error:
            raise ValueError(f"writer_lock cannot be opened: {error.strerror}") from error
        self._path = directory / name
        if lock_is_free(self._file):
            os.close(self._file)
            raise ValueError("writer_lock is not held")

    def is_free(self) -> bool:
        """Return whether the writer is dead or has released the lock."""
        return lock_is_free(self._file)

    def close(self, *, remove: bool = False) -> None:
        """Stop watching; `remove` the file of a dead writer."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
