"""The arena's file as every process that maps it sees it.

    header: magic ‖ version ‖ page ‖ generations at ‖ index at ‖ data at ‖ data bytes ‖ secret,
        little-endian; followed by the bytes of data that are backed by memory, as i64
    generations: one i64 per page of data, in the machine's byte order
    index: the readable objects, which readers look up themselves; index.py defines its format
    data: slots, each of which begins on a page

Reading the secret through the file proves that store and client share memory. A slot's generation
is stored under its first page and changes whenever the slot is reused: a reader checks it after
copying, and a changed value means that the slot may have been overwritten during the copy.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baton.kv.arena.index import ENTRY_BYTES, IndexReader, index_entries

PAGE_BYTES = 4096
SECRET_BYTES = 16

_MAGIC = b"batonkv\0"
_VERSION = 2
_HEADER = struct.Struct("<8sIIQQQQ16s")
_TOUCHED_AT = 128
"""Offset of the count of bytes that are backed by memory, after the header."""
_POPULATE = {False: 22, True: 23}
"""madvise(2): MADV_POPULATE_READ and _WRITE, since Linux 5.14."""
POPULATE_STEP_BYTES = 8 * 1024 * 1024
"""Bytes of memory that one call of `populate_next` maps, which takes some milliseconds."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class ArenaFileError(Exception):
    """The file is not an arena that this process can use."""


@dataclass(frozen=True, slots=True)
class ArenaHeader:
    """Header at the start of the file; offsets and sizes in bytes."""

    generations_at: int
    index_at: int
    data_at: int
    data_bytes: int
    secret: bytes

    @classmethod
    def plan(cls, data_bytes: int) -> "ArenaHeader":
        """Return the header of a new arena for `data_bytes`, a multiple of the page."""
        index_at = _round_up(PAGE_BYTES + 8 * (data_bytes // PAGE_BYTES))
        data_at = _round_up(index_at + ENTRY_BYTES * index_entries(data_bytes))
        secret = secrets.token_bytes(SECRET_BYTES)
        return cls(PAGE_BYTES, index_at, data_at, data_bytes, secret)

    @property
    def file_bytes(self) -> int:
        """Return the length of the whole file."""
        return self.data_at + self.data_bytes

    def pack(self) -> bytes:
        """Return the header as it is stored in the file."""
        return _HEADER.pack(
            _MAGIC,
            _VERSION,
            PAGE_BYTES,
            self.generations_at,
            self.index_at,
            self.data_at,
            self.data_bytes,
            self.secret,
        )

    @classmethod
    def unpack(cls, data: bytes) -> "ArenaHeader":
        """Return the header that `data` begins with.

        Raises:
            ArenaFileError: another kind of file, or another version.
        """
        if len(data) < _HEADER.size:
            raise ArenaFileError(f"{len(data)} bytes are too short for an arena's header")
        magic, version, page, *places, size, secret = _HEADER.unpack_from(data)
        if (magic, version, page) != (_MAGIC, _VERSION, PAGE_BYTES):
            raise ArenaFileError("not an arena of this version")
        generations_at, index_at, data_at = places
        header = cls(generations_at, index_at, data_at, size, secret)
        if index_at < generations_at + 8 * (
            size // PAGE_BYTES
        ) or data_at < index_at + ENTRY_BYTES * index_entries(size):
            raise ArenaFileError("the header is inconsistent")
        return header


Found = tuple[int, memoryview, int, int, bytes]
"""An object as the index describes it: position of its key, its bytes, the page of data on which it
begins, its generation, its digest.
"""


class MappedArena:
    """An arena that a client has mapped.

    Any thread may use it, except that one thread at a time may call `populate_next`. It has no
    `close`: the mapping is removed when its last view is released.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            ArenaFileError: the file does not exist, is not accessible, or is not an arena.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise ArenaFileError(f"cannot open the arena: {error.strerror}") from error
        try:
            self.header = ArenaHeader.unpack(os.pread(file, _HEADER.size, 0))
            size = os.fstat(file).st_size
            if size < self.header.file_bytes:
                raise ArenaFileError(f"the arena has {size} of {self.header.file_bytes} bytes")
            # Readers get a read-only mapping.
            self._read = mmap.mmap(file, size, access=mmap.ACCESS_READ)
            self._write = mmap.mmap(file, size)
            advise_huge(self._read)
            advise_huge(self._write)
        except (OSError, ValueError) as error:
            raise ArenaFileError(f"cannot map the arena: {error}") from error
        finally:
            os.close(file)
        self._begin, self._end = self.header.data_at, self.header.file_bytes
        self._readable = memoryview(self._read)
        self._writable = memoryview(self._write)
        self.generations = generations(self._readable, self.header)
        """Current generations of the slots, by page of the data."""
        self.populated_bytes = 0
        """Bytes of the data that are mapped into this process: copies cause no page fault."""
        self.index = IndexReader(
            self._readable[self.header.index_at : self.header.data_at],
            index_entries(self.header.data_bytes),
        )

    def readable(self, offset: int, length: int) -> memoryview:
        """Return a slot's bytes, read-only; `offset` counts from the file's beginning.

        Raises:
            ArenaFileError: the slot lies outside the data.
        """
        return self._readable[self._checked(offset, length) : offset + length]

    def writable(self, offset: int, length: int) -> memoryview:
        """Return the writable bytes of a reserved slot; otherwise as `readable`."""
        return self._writable[self._checked(offset, length) : offset + length]

    def find(self, keys: bytes, tag: int, length: int) -> Iterator[Found]:
        """Yield the index's objects for packed 16-byte keys, all of one length, in key order."""
        last = self._end - self._begin - length
        if last < 0:
            return
        which, rows = self.index.find(keys, tag)
        # An offset below the start of the data wraps to a very large unsigned difference.
        within = rows[:, 3] - np.uint64(self._begin) <= np.uint64(last)
        good = (rows[:, 5] == np.uint64(length)) & within
        if not good.all():
            which, rows = which[good], rows[good]
        digests = rows[:, 6:8].tobytes()
        for at, (index, (offset, generation)) in enumerate(
            zip(which.tolist(), rows[:, 3:5].tolist(), strict=True)
        ):
            data = self._readable[offset : offset + length]
            yield index, data, self.page(offset), generation, digests[16 * at : 16 * at + 16]

    def page(self, offset: int) -> int:
        """Return the index in `generations` of the slot that begins at `offset`."""
        return (offset - self._begin) // PAGE_BYTES

    def populate_next(self) -> bool:
        """Map the next part of the memory that exists; return whether more may follow.

        Without this call, the first copy through a page waits for the kernel to map it, which is
        slower than the copy itself. Blocks for milliseconds without holding the interpreter's lock;
        only one thread at a time may call it.
        """
        step = min(self.touched_bytes - self.populated_bytes, POPULATE_STEP_BYTES)
        if step > 0:
            start = self.header.data_at + self.populated_bytes
            for mapping, write in ((self._readable, False), (self._writable, True)):
                if not populate(mapping[start : start + step], write=write):
                    return False  # older kernel: pages are mapped on first use
            self.populated_bytes += step
        return self.populated_bytes < self.header.data_bytes

    @property
    def touched_bytes(self) -> int:
        """Return how many bytes of the data are backed by memory."""
        return min(touched_bytes(self._readable)[0], self.header.data_bytes)

    def _checked(self, offset: int, length: int) -> int:
        if not self._begin <= offset <= offset + length <= self._end:
            raise ArenaFileError(f"{length} bytes at {offset} are outside the arena")
        return offset


def generations(file: memoryview, header: ArenaHeader) -> "memoryview[int]":
    """Return the table of generations inside a mapped file, one per page of data."""
    end = header.generations_at + 8 * (header.data_bytes // PAGE_BYTES)
    return file[header.generations_at : end].cast("q")


def touched_bytes(file: memoryview) -> "memoryview[int]":
    """Return the counter in a mapped file of the data bytes that are backed by memory."""
    return file[_TOUCHED_AT : _TOUCHED_AT + 8].cast("q")


def populate(view: memoryview, *, write: bool) -> bool:
    """Back whole pages of a mapping with memory, for reading or for writing.

    Blocks without holding the interpreter's lock. Return False where the kernel does not support
    it.

    Raises:
        OSError: no memory, or no space in the file system, is left.
    """
    address = np.frombuffer(view, dtype=np.uint8).ctypes.data
    if _libc.madvise(address, view.nbytes, _POPULATE[write]) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EINVAL:
        return False
    raise OSError(number, os.strerror(number))


def advise_huge(mapping: mmap.mmap) -> None:
    """Request huge pages, which the file system may not support."""
    with contextlib.suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)


def _round_up(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
