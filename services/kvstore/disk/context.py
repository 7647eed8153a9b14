"""What the loader and the spiller share."""

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field

from baton.kv.arena.file import PAGE_BYTES
from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from services.kvstore.disk.codecs import Codecs
from services.kvstore.disk.file import DiskFile
from services.kvstore.disk.index import DiskIndex
from services.kvstore.memory.arena import Arena
from services.kvstore.memory.object_table import ObjectTable

MAX_JOB_BYTES = 8 * 1024 * 1024
"""One batch of a thread; one object at least."""


@dataclass(slots=True)
class DiskCounts:
    """What the tier has done. Bytes are those of the objects, however they are kept."""

    read_bytes: int = 0
    written_bytes: int = 0
    bad_objects: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class DiskContext:
    """Memory above, disk below. The event loop owns them, but for the bytes."""

    table: ObjectTable
    arena: Arena
    index: DiskIndex
    file: DiskFile
    codecs: Codecs
    clock: Callable[[], float]
    verify: bool
    """Whether bytes are checked against their digest before they move on."""
    counts: DiskCounts = field(default_factory=DiskCounts)

    def is_right(self, object_id: ObjectId, digest: bytes, data: memoryview) -> bool:
        """Whether bytes are the object's, as far as anybody requests to know. Any thread."""
        if not self.verify:
            return True
        found = start_digest(object_id, data.nbytes)
        found.update(data)
        return found.digest() == digest


class Scratch:
    """Whole pages of memory for direct I/O, used again and again by one thread."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def pages(self, size: int) -> memoryview:
        """Room for `size` bytes to the end of the last page, with anything in it."""
        whole = -(-size // PAGE_BYTES) * PAGE_BYTES
        if self._memory.nbytes < whole:
            self._memory = memoryview(mmap.mmap(-1, whole))
        return self._memory[:whole]
