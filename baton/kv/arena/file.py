"""The arena's file as every process that maps it sees it.

    header: magic ‖ version ‖ page ‖ generations at ‖ index at ‖ data at ‖ data bytes ‖ secret,
        little-endian; behind it, how much of the data has memory behind it, as i64
    generations: one i64 per page of data, in the machine's byte order
    index: what is readable, for readers to look up by themselves; its format is index.py's
    data: slots, each beginning on a page

Reading the secret through the file proves that store and client share memory. A slot's generation
stands at its first page's place and changes whenever the slot changes hands: a reader that copied a
slot reads it afterwards, and finds it changed if there may have been another write meanwhile.
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
"""Offset of the count of touched bytes, after the header."""
_POPULATE = {False: 22, True: 23}
"""madvise(2): MADV_POPULATE_READ and _WRITE, since Linux 5.14."""
POPULATE_STEP_BYTES = 8 * 1024 * 1024
"""Memory that one call of `populate_next` maps, some milliseconds."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class ArenaFileError(Exception):
    """The file is not an arena that this process can use."""


@dataclass(frozen=True, slots=True)
class ArenaHeader:
    """The beginning of the file; offsets and sizes in bytes."""

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
        """Length of the whole file."""
        return self.data_at + self.data_bytes

    def pack(self) -> bytes:
        """Return the header as it stands in the file."""
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
            raise ArenaFileError("the header contradicts itself")
        return header


Found = tuple[int, memoryview, int, int, bytes]
"""An object as the index describes it: which of the keys, its bytes, the page of the data that it
begins on, the generation that it had, its digest."""


class MappedArena:
    """An arena mapped by a client, for any thread; only `populate_next` is for one at a time.

    It is never closed: the mapping goes when the last view of it does.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            ArenaFileError: it is not there, not allowed, or not an arena.
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
            # Readers get a mapping that they cannot write through.
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
        """The slots' present ones, by page of the data."""
        self.populated_bytes = 0
        """How much of the data is mapped into this process: copying it waits for no page."""
        self.index = IndexReader(
            self._readable[self.header.index_at : self.header.data_at],
            index_entries(self.header.data_bytes),
        )

    def readable(self, offset: int, length: int) -> memoryview:
        """Return a slot's bytes, read-only; `offset` counts from the file's beginning.

        Raises:
            ArenaFileError: they lie outside of the data.
        """
        return self._readable[self._checked(offset, length) : offset + length]

    def writable(self, offset: int, length: int) -> memoryview:
        """Return a reserved slot's bytes to be written; otherwise as `readable`."""
        return self._writable[self._checked(offset, length) : offset + length]

    def find(self, keys: bytes, tag: int, length: int) -> Iterator[Found]:
        """Yield what the index shows of packed 16-byte keys, of one length, in their order."""
        last = self._end - self._begin - length
        if last < 0:
            return
        which, rows = self.index.find(keys, tag)
        # Below the first place the difference of two unsigned numbers is a very large one.
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
        """Map the next of the memory that is there; return whether there may be more later.

        Without it the first copy through a page waits for the kernel to map it, which is slower
        than the copy. Blocks for milliseconds and holds no lock of the interpreter; one
        thread at a time.
        """
        step = min(self.touched_bytes - self.populated_bytes, POPULATE_STEP_BYTES)
        if step > 0:
            start = self.header.data_at + self.populated_bytes
            for mapping, write in ((self._readable, False), (self._writable, True)):
                if not populate(mapping[start : start + step], write=write):
                    return False  # an older kernel: pages are mapped at their first use
            self.populated_bytes += step
        return self.populated_bytes < self.header.data_bytes

    @property
    def touched_bytes(self) -> int:
        """How much of the data has memory behind it."""
        return min(touched_bytes(self._readable)[0], self.header.data_bytes)

    def _checked(self, offset: int, length: int) -> int:
        if not self._begin <= offset <= offset + length <= self._end:
            raise ArenaFileError(f"{length} bytes at {offset} are outside of the arena")
        return offset


def generations(file: memoryview, header: ArenaHeader) -> "memoryview[int]":
    """Return the table of generations inside a mapped file, one per page of data."""
    end = header.generations_at + 8 * (header.data_bytes // PAGE_BYTES)
    return file[header.generations_at : end].cast("q")


def touched_bytes(file: memoryview) -> "memoryview[int]":
    """Return the number in a mapped file that says how much of the data has memory behind it."""
    return file[_TOUCHED_AT : _TOUCHED_AT + 8].cast("q")


def populate(view: memoryview, *, write: bool) -> bool:
    """Put memory behind whole pages of a mapping, to be read or to be written.

    Blocks, and holds no lock of the interpreter. Return False where the kernel cannot.

    Raises:
        OSError: there is no memory, or no room in the file system.
    """
    address = np.frombuffer(view, dtype=np.uint8).ctypes.data
    if _libc.madvise(address, view.nbytes, _POPULATE[write]) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EINVAL:
        return False
    raise OSError(number, os.strerror(number))


def advise_huge(mapping: mmap.mmap) -> None:
    """Ask for huge pages, which the file system may not have."""
    with contextlib.suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)


def _round_up(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
