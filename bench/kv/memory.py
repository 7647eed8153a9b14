"""Copies to and from shared memory like an arena's, and nothing else: the limit of memcpy."""

import mmap
import tempfile

from baton.kv.arena.file import populate


class SharedMemory:
    """Shared memory, mapped twice in this process, as a client of a store maps an arena."""

    def __init__(self, size: int) -> None:
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            file.truncate(size)
            self._write = memoryview(mmap.mmap(file.fileno(), size))
            self._read = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
        populate(self._write, write=True)
        populate(self._read, write=False)
        self._next = 0

    def offsets(self, count: int, size: int) -> range:
        """Return the positions of the next objects, spread over the memory as in a full arena."""
        if self._next + count * size > self._write.nbytes:
            self._next = 0
        begin, self._next = self._next, self._next + count * size
        return range(begin, self._next, size)

    def copy_in(self, offsets: range, sources: list[memoryview]) -> None:
        """Write each source at the offsets, whose step is its size in bytes."""
        size = offsets.step
        for offset, source in zip(offsets, sources, strict=True):
            self._write[offset : offset + size] = source

    def copy_out(self, offsets: range, targets: list[memoryview]) -> None:
        """Read the bytes at the offsets."""
        size = offsets.step
        for offset, target in zip(offsets, targets, strict=True):
            target[:] = self._read[offset : offset + size]
