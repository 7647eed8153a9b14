"""The arena's file as every process that maps it sees it.

    header: magic ‖ version ‖ page ‖ generations at ‖ data at ‖ data bytes ‖ secret, little-endian
    generations: one i64 per page of data, in the machine's byte order
    data: slots, each beginning on a page

Reading the secret through the file proves that store and client share memory. A slot's generation
stands at its first page's place and changes whenever the slot changes hands: whoever copied a slot
reads it afterwards, and finds it changed if somebody else may have written meanwhile.
"""

import mmap
import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = 4096
SECRET_BYTES = 16

_MAGIC = b"batonkv\0"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQQ16s")


class ArenaFileError(Exception):
    """The file is not an arena that this process can use."""


@dataclass(frozen=True, slots=True)
class ArenaHeader:
    """What stands at the beginning of the file; offsets and sizes in bytes."""

    generations_at: int
    data_at: int
    data_bytes: int
    secret: bytes

    @classmethod
    def plan(cls, data_bytes: int) -> "ArenaHeader":
        """Lay out an arena for `data_bytes` (a multiple of the page) with a new secret."""
        end = PAGE_BYTES + 8 * (data_bytes // PAGE_BYTES)
        return cls(PAGE_BYTES, _round_up(end), data_bytes, secrets.token_bytes(SECRET_BYTES))

    @property
    def file_bytes(self) -> int:
        return self.data_at + self.data_bytes

    def pack(self) -> bytes:
        return _HEADER.pack(
            _MAGIC,
            _VERSION,
            PAGE_BYTES,
            self.generations_at,
            self.data_at,
            self.data_bytes,
            self.secret,
        )

    @classmethod
    def unpack(cls, data: bytes) -> "ArenaHeader":
        """Read a header.

        Raises:
            ArenaFileError: another kind of file, or another version.
        """
        if len(data) < _HEADER.size:
            raise ArenaFileError(f"{len(data)} bytes are too short for an arena's header")
        magic, version, page, generations_at, data_at, size, secret = _HEADER.unpack_from(data)
        if (magic, version, page) != (_MAGIC, _VERSION, PAGE_BYTES):
            raise ArenaFileError("not an arena of this version")
        header = cls(generations_at, data_at, size, secret)
        if data_at < generations_at + 8 * (size // PAGE_BYTES):
            raise ArenaFileError("the header contradicts itself")
        return header


class MappedArena:
    """An arena mapped by a client. Views stay valid as long as somebody holds them.

    Nothing is closed by hand: the mapping goes when the last view of it does.
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
        except (OSError, ValueError) as error:
            raise ArenaFileError(f"cannot map the arena: {error}") from error
        finally:
            os.close(file)
        self._readable = memoryview(self._read)
        self._writable = memoryview(self._write)
        self._generations = generations(self._readable, self.header)

    def readable(self, offset: int, length: int) -> memoryview:
        """Bytes of a slot, read-only; `offset` counts from the file's beginning.

        Raises:
            ArenaFileError: they lie outside of the data.
        """
        return self._readable[self._checked(offset, length) : offset + length]

    def writable(self, offset: int, length: int) -> memoryview:
        """Bytes of a reserved slot, to be written; otherwise as `readable`."""
        return self._writable[self._checked(offset, length) : offset + length]

    def generation(self, offset: int) -> int:
        """The present generation of the slot that begins at `offset`."""
        return self._generations[(offset - self.header.data_at) // PAGE_BYTES]

    def _checked(self, offset: int, length: int) -> int:
        if not self.header.data_at <= offset <= offset + length <= self.header.file_bytes:
            raise ArenaFileError(f"{length} bytes at {offset} are outside of the arena")
        return offset


def generations(file: memoryview, header: ArenaHeader) -> "memoryview[int]":
    """The table of generations inside a mapped file, one per page of data."""
    end = header.generations_at + 8 * (header.data_bytes // PAGE_BYTES)
    return file[header.generations_at : end].cast("q")


def _round_up(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
