"""The disk tier's file: a header, a record per granule, data. Blocking; contains no policy.

    header:  magic ‖ version ‖ data bytes
    records: one per granule of data; that of a slot's first granule describes its contents
    data:    slots, each of whole granules

What survives a crash: a slot's record is cleared before its bytes change and written after they
did, so that a killed process leaves no record of incomplete bytes. A machine that loses power may
write them in another order: therefore readers check the digest in the record, which covers the
object's name, length and bytes. Nothing is synced: KV is a cache.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh64_digest

from baton.kv.arena.file import PAGE_BYTES
from baton.kv.digest import DIGEST_BYTES
from baton.kv.objects import MAX_TENANT_BYTES, ObjectId

GRANULE_BYTES = 16 * 1024
RECORD_BYTES = 256
SLAB_BYTES = 1024 * 1024
MAX_RUN = 256
"""Most adjacent slots in one read: the system takes 1,024 pieces of memory per call."""

_MAGIC = b"batonkvd"
_VERSION = 3
_HEADER = struct.Struct("<8sIQ")
_RECORD = struct.Struct(f"<16s16sIIIQQQf{DIGEST_BYTES}sH{MAX_TENANT_BYTES}s")
_CHECK_BYTES = 8
_SCAN_BYTES = 4096 * RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of one slot."""

    object_id: ObjectId
    object_bytes: int
    slot_bytes: int
    offset: int
    """Offset from the beginning of the data."""
    span_start: int
    """Where the allocator's span of slots of this size begins."""
    digest: bytes
    tenant: str
    cost: float

    def pack(self) -> bytes:
        """Return the record as stored in the file, RECORD_BYTES long."""
        layout_id, key, group, shard, part = self.object_id
        tenant = self.tenant.encode()
        body = _RECORD.pack(
            layout_id,
            key,
            group,
            shard,
            part,
            self.object_bytes,
            self.slot_bytes,
            self.span_start,
            self.cost,
            self.digest,
            len(tenant),
            tenant,
        )
        return (body + _check(body, self.offset)).ljust(RECORD_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes, offset: int) -> "Record | None":
        """Return the record of the granule at an offset; None if there is none, or a broken one."""
        body, check = data[: _RECORD.size], data[_RECORD.size : _RECORD.size + _CHECK_BYTES]
        if _check(body, offset) != check:
            return None
        layout_id, key, group, shard, part, *rest = _RECORD.unpack(body)
        size, slot, start, cost, digest, length, tenant = rest
        name = ObjectId(layout_id, key, group, shard, part)
        if not 0 < size <= slot or slot % GRANULE_BYTES:
            return None
        tenant = tenant[:length].decode()
        return cls(name, size, slot, offset, start, digest, tenant, cost)


class DiskFile:
    """The file of one disk tier: reads and writes slots and their records, and locks the file.

    Owned by DiskTier, whose threads call it. Each method blocks and may run on any thread; one slot
    has one user at a time.

    Args:
        path: the file; created, or recreated if it has another size or version.
        data_bytes: for objects, a multiple of SLAB_BYTES.

    Raises:
        OSError: it cannot be created or locked, or the disk has too little space.
    """

    def __init__(self, path: Path, data_bytes: int) -> None:
        self.path = path
        self.data_bytes = data_bytes
        records = data_bytes // GRANULE_BYTES * RECORD_BYTES
        self._data_at = PAGE_BYTES + -(-records // PAGE_BYTES) * PAGE_BYTES
        self._records_bytes = records
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._direct = -1
        self._gap = mmap.mmap(-1, GRANULE_BYTES)
        """What lies between the objects of adjacent slots; direct I/O needs whole pages."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = _HEADER.pack(_MAGIC, _VERSION, data_bytes)
            size = self._data_at + data_bytes
            same = os.pread(self._file, len(header), 0) == header
            if not same or os.fstat(self._file).st_size != size:
                os.ftruncate(self._file, 0)
            self._allocate(size)
            os.pwrite(self._file, header, 0)
            self._direct = self._open_direct()
        except BaseException:
            self.close()
            raise

    @property
    def is_direct(self) -> bool:
        """Return whether data bypasses the page cache."""
        return self._direct != self._file

    def records(self) -> Iterator[Record]:
        """Yield every valid record, in order of offset.

        Raises:
            OSError: the file cannot be read.
        """
        for at in range(0, self._records_bytes, _SCAN_BYTES):
            piece = os.pread(
                self._file, min(_SCAN_BYTES, self._records_bytes - at), PAGE_BYTES + at
            )
            for start in range(0, len(piece), RECORD_BYTES):
                data = piece[start : start + RECORD_BYTES]
                if data.strip(b"\0"):
                    offset = (at + start) // RECORD_BYTES * GRANULE_BYTES
                    record = Record.unpack(data, offset)
                    if record is not None:
                        yield record

    def clear(self, offset: int) -> None:
        """Clear a slot's record, which invalidates its contents.

        Raises:
            OSError: the disk fails.
        """
        self._write_record(offset, bytes(RECORD_BYTES))

    def erase(self, offset: int, size: int) -> None:
        """Overwrite the bytes of a slot whose record is clear.

        Raises:
            OSError: the disk fails.
        """
        _all(os.pwritev, self._file, memoryview(bytes(size)), self._data_at + offset)

    def write(self, record: Record, pages: memoryview) -> None:
        """Write an object into a slot whose record is clear; `pages` are whole pages of memory.

        Raises:
            OSError: the disk fails.
        """
        _all(os.pwritev, self._direct, pages, self._data_at + record.offset)
        self._write_record(record.offset, record.pack())

    def read(self, offset: int, slots: Sequence[memoryview], slot_bytes: int) -> None:
        """Read adjacent slots with one call: for small ones it takes longer than their bytes.

        Args:
            offset: of the first slot.
            slots: for each slot, whole pages of memory that receive its bytes; at most MAX_RUN.
            slot_bytes: size of each slot, at most a granule more than its pages.

        Raises:
            OSError: the disk fails.
        """
        buffers: list[memoryview] = []
        for pages in slots:
            if buffers:
                buffers.append(memoryview(self._gap)[: slot_bytes - buffers[-1].nbytes])
            buffers.append(pages)
        buffers = [buffer for buffer in buffers if buffer.nbytes]
        wanted = sum(buffer.nbytes for buffer in buffers)
        if os.preadv(self._direct, buffers, self._data_at + offset) == wanted:
            return
        for number, pages in enumerate(slots):  # a signal or the file's end: continue in parts
            _all(os.preadv, self._direct, pages, self._data_at + offset + number * slot_bytes)

    def close(self) -> None:
        """Close and unlock the file."""
        for file in {self._file, self._direct} - {-1}:
            os.close(file)
        self._file = self._direct = -1
        self._gap.close()

    def _allocate(self, size: int) -> None:
        """Allocate the whole file; on failure it keeps its previous size."""
        had = os.fstat(self._file).st_size
        try:
            os.posix_fallocate(self._file, 0, size)
        except OSError:
            os.ftruncate(self._file, had)  # a partial file would only keep a full disk full
            raise

    def _open_direct(self) -> int:
        with suppress(OSError):  # some file systems do not support it
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
        return self._file

    def _write_record(self, offset: int, data: bytes) -> None:
        at = PAGE_BYTES + offset // GRANULE_BYTES * RECORD_BYTES
        _all(os.pwritev, self._file, memoryview(data), at)


def _check(body: bytes, offset: int) -> bytes:
    """Return the check bytes that distinguish a record from noise and from misplaced ones."""
    return xxh64_digest(body + offset.to_bytes(8, "little"))


def _all(transfer: object, file: int, data: memoryview, at: int) -> None:
    done = 0
    while done < data.nbytes:
        count = transfer(file, [data[done:]], at + done)  # type: ignore[operator]
        if not count:
            raise OSError(f"the file ends at {at + done}")
        done += count
