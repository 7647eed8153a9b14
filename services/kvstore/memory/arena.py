"""The arena: one file that the store maps, and clients on the same host map too."""

import hashlib
import mmap
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from baton.host.cgroup import memory_limit
from baton.host.file_locks import create_locked, remove_if_abandoned
from baton.kv.arena.file import (
    PAGE_BYTES,
    ArenaHeader,
    advise_huge,
    generations,
    populate,
    touched_bytes,
)
from baton.kv.arena.writer_lock import LOCK_SUFFIX
from baton.settings import StartupError
from services.kvstore.memory.slot import Slot

ARENA_PREFIX = "baton-kv-"
ARENA_SUFFIX = ".arena"
STEP_BYTES = 1024 * 1024
_MIB = 1024 * 1024


class Arena:
    """The file `baton-kv-….arena`, mapped. Use as a context manager; leaving it removes the file.

    Owned by the store. The file is locked while its owner lives; files of dead owners, and writers'
    lock files next to them, are removed when a store starts. It is created sparse: slots are only
    placed where pages were touched before, and a thread touches the rest in small steps, so that
    neither start-up nor a first write waits for memory, and no process is killed for touching
    memory that is not available.

    Args:
        directory: of the file; memory-backed to be fast.
        data_bytes: for objects; a multiple of `STEP_BYTES`.

    Raises:
        StartupError: it does not fit, or the directory cannot be used.
    """

    def __init__(self, directory: Path, data_bytes: int) -> None:
        self.header = ArenaHeader.plan(data_bytes)
        _remove_stale(directory)
        check_room(directory, self.header.file_bytes)
        self.path = directory / f"{ARENA_PREFIX}{secrets.token_hex(8)}{ARENA_SUFFIX}"
        try:
            self._file = create_locked(self.path)
        except OSError as error:
            raise _unusable(directory, error) from error
        try:
            os.ftruncate(self._file, self.header.file_bytes)
            # What precedes the data gets its memory immediately.
            os.posix_fallocate(self._file, 0, self.header.data_at)
            os.pwrite(self._file, self.header.pack(), 0)
            mapping = mmap.mmap(self._file, self.header.file_bytes)
            advise_huge(mapping)
            self._view = memoryview(mapping)
        except OSError as error:
            self.__exit__()
            raise _unusable(directory, error) from error
        self.generations = generations(self._view, self.header)
        self._counters = np.frombuffer(self.generations, dtype=np.int64)
        self.index = self._view[self.header.index_at : self.header.data_at]
        """The table of readable objects, written by SharedIndex."""
        self._touched = touched_bytes(self._view)

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._file)

    @property
    def touched_bytes(self) -> int:
        """Bytes of the data with allocated memory; clients see the number too."""
        return self._touched[0]

    @property
    def shm_domain(self) -> str:
        """Identifies the memory of the file: equal in processes that can map it."""
        where = os.fstat(self._file)
        boot = Path("/proc/sys/kernel/random/boot_id")
        text = f"{boot.read_text().strip() if boot.exists() else ''}/{where.st_dev}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file(self) -> memoryview:
        """The whole file, writable, for transports that access it directly."""
        return self._view

    def file_offset(self, slot: Slot) -> int:
        """Return where a slot's bytes begin in the file."""
        return self.header.data_at + slot.offset

    def view(self, slot: Slot) -> memoryview:
        """Return an object's writable bytes, for the holder of a reservation or a lease."""
        start = self.file_offset(slot)
        return self._view[start : start + slot.object_bytes]

    def pages(self, slot: Slot) -> memoryview:
        """Return as `view`, up to the end of the last page: what direct I/O reads and writes."""
        start = self.file_offset(slot)
        return self._view[start : start + slot.slot_bytes]

    def erase(self, slot: Slot) -> None:
        """Overwrite the bytes of a slot that nothing reads or writes any more."""
        self.pages(slot)[:] = bytes(slot.slot_bytes)

    def carve(self, offset: int, size: int) -> None:
        """Change the generations of a range that gets new slots, which readers detect."""
        self._counters[offset // PAGE_BYTES : (offset + size) // PAGE_BYTES] += 1

    def touch_next(self) -> bool:
        """Allocate memory for the next step of the data; return False if all has some.

        Blocks for milliseconds, on any thread. Fills with zeros: no slot may be there yet.

        Raises:
            OSError: there is no more memory.
        """
        if self.touched_bytes >= self.header.data_bytes:
            return False
        start = self.header.data_at + self.touched_bytes
        if not populate(self._view[start : start + STEP_BYTES], write=True):
            os.pwrite(self._file, bytes(STEP_BYTES), start)
        self._touched[0] += STEP_BYTES
        return True


def check_room(
    directory: Path, needed: int, limits: Callable[[Path], dict[str, int]] | None = None
) -> None:
    """Check that there is space for an arena.

    Args:
        directory: of the file.
        needed: bytes of the whole file.
        limits: returns its bounds; None: `memory_limits`.

    Raises:
        StartupError: it does not fit; the text names the bound.
    """
    for name, free in (limits or memory_limits)(directory).items():
        if needed > free:
            raise StartupError(
                f"store.arena_bytes needs {-(-needed // _MIB)} MiB, and {name} has only "
                f"{free // _MIB} MiB free: lower BATON_STORE_ARENA_BYTES or "
                "--store-arena-bytes, or free memory."
            )


def memory_limits(directory: Path) -> dict[str, int]:
    """Return the free bytes of everything that bounds a file in a directory, by name.

    Raises:
        StartupError: there is no such directory.
    """
    try:
        limits = {str(directory): shutil.disk_usage(directory).free}
    except OSError as error:
        raise _unusable(directory, error) from error
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            limits["the machine"] = int(line.split()[1]) * 1024
    if (limit := memory_limit()) is not None:
        limits["the cgroup"] = limit
    return limits


def _unusable(directory: Path, error: OSError) -> StartupError:
    return StartupError(
        f"store.arena_dir {directory} cannot be used ({error.strerror}): set "
        "BATON_STORE_ARENA_DIR or --store-arena-dir to a directory in memory that this "
        "process can write to."
    )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _remove_stale(directory: Path) -> None:
    for suffix in (ARENA_SUFFIX, LOCK_SUFFIX):
        for path in directory.glob(f"{ARENA_PREFIX}*{suffix}"):
            remove_if_abandoned(path)
