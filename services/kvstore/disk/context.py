"""What the loader and the spiller share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from services.kvstore.disk.file import DiskFile
from services.kvstore.disk.index import DiskIndex
from services.kvstore.memory.arena import Arena
from services.kvstore.memory.object_table import ObjectTable

MAX_JOB_BYTES = 8 * 1024 * 1024
"""Most bytes in one batch of a thread; at least one object."""


@dataclass(slots=True)
class DiskCounts:
    """Counters of the tier, across openings of its file. Bytes are those of the objects."""

    read_bytes: int = 0
    written_bytes: int = 0
    bad_objects: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class DiskContext:
    """Memory above, disk below. Owned by the event loop, except for the bytes."""

    table: ObjectTable
    arena: Arena
    index: DiskIndex
    file: DiskFile
    clock: Callable[[], float]
    verify: bool
    """Whether bytes are checked against their digests before they are moved."""
    counts: DiskCounts = field(default_factory=DiskCounts)

    def is_right(self, object_id: ObjectId, digest: bytes, data: memoryview) -> bool:
        """Return whether bytes match the object; always True without checks. Any thread."""
        if not self.verify:
            return True
        found = start_digest(object_id, data.nbytes)
        found.update(data)
        return found.digest() == digest
