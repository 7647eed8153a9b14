"""Files that live as long as their owner: an flock shows that it is alive, however it dies.

The kernel releases a lock when its owner's last descriptor is closed, also by SIGKILL, and not
before: a stopped process keeps its locks. Files with a free lock have no owner and may be removed.
"""

import fcntl
import os
from pathlib import Path


def create_locked(path: Path, mode: int = 0o600) -> int:
    """Create a file that did not exist, and lock it.

    Returns:
        The descriptor that holds the lock; closing it releases the lock.

    Raises:
        OSError: the file exists, or the directory cannot be written.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(path, flags, mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Between the two calls another process may have treated the file as abandoned.
            if _is_at(path, file):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def try_lock(path: Path, mode: int = 0o600) -> int | None:
    """Lock a file, created if it does not exist; None: another process has the lock.

    Returns:
        The descriptor that holds the lock, for `unlock`.

    Raises:
        OSError: the file cannot be created, or its file system has no locks.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):
                return file
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # its last owner removed it between the two calls


def unlock(path: Path, file: int) -> None:
    """Remove a file that `try_lock` locked, and release the lock."""
    try:
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


def lock_is_free(file: int) -> bool:
    """Return whether the file's owner is dead. `file` must be a different open file than the
    owner's."""
    try:
        # Shared: several may check at the same time, without taking each other for the owner.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def is_locked(path: Path) -> bool:
    """Return whether a file has a live owner; False if the file does not exist.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not lock_is_free(file)
    finally:
        os.close(file)


def remove_if_abandoned(path: Path) -> bool:
    """Remove a file if its owner is dead; return whether it was removed."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # already removed, or no permission to open it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, file):
            return False
        path.unlink()
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(file)


def _is_at(path: Path, file: int) -> bool:
    mine = os.fstat(file)
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
