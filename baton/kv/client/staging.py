"""Memory that holds objects until they are sent. Buffers are reused: fresh pages are slow."""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

from baton.host.aligned_memory import aligned_memory


class StagingPool:
    """Buffers of one connection, for any thread. Unused buffers are bounded; others are freed."""

    def __init__(self, max_kept_bytes: int) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._lock = Lock()

    def acquire(self, size: int) -> memoryview:
        """Return a writable buffer of `size` bytes, above 0, with arbitrary content."""
        with self._lock:
            kept = self._kept.get(size)
            if kept:
                self._kept_bytes -= size
                return kept.pop()
        return aligned_memory(size)

    def release(self, buffer: memoryview) -> None:
        """Keep a buffer that is no longer written to. Buffers of other sizes may be freed."""
        size = buffer.nbytes
        with self._lock:
            while self._kept_bytes + size > self._max_kept_bytes and self._kept:
                other = next(iter(self._kept))
                self._kept_bytes -= other * len(self._kept.pop(other))
            if size <= self._max_kept_bytes:
                self._kept.setdefault(size, []).append(buffer)
                self._kept_bytes += size


class StagedSlots(Mapping[int, memoryview]):
    """Buffers for the objects of a reservation, by index; each is acquired on first access."""

    def __init__(self, staging: StagingPool, indexes: Iterable[int], size: int) -> None:
        self._staging = staging
        self._size = size
        self._buffers: dict[int, memoryview | None] = dict.fromkeys(indexes)

    def __getitem__(self, index: int) -> memoryview:
        buffer = self._buffers[index]
        if buffer is None:
            buffer = self._buffers[index] = self._staging.acquire(self._size)
        return buffer

    def __iter__(self) -> Iterator[int]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    def pop(self, index: int) -> None:
        """Release the buffer of an object that was sent and is no longer written to."""
        buffer = self._buffers.pop(index)
        if buffer is not None:
            self._staging.release(buffer)

    def clear(self) -> None:
        """Drop the other buffers, to which a thread may still be writing."""
        self._buffers.clear()
