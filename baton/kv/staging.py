"""Memory that objects lie in until they are sent: used again, for fresh pages are slow."""

MAX_KEPT_BYTES = 128 * 1024 * 1024
"""Of buffers that nobody uses; what comes back beyond it is freed."""


class Staging:
    """Buffers of one connection. One event loop uses it."""

    def __init__(self, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0

    def take(self, size: int) -> memoryview:
        """A writable buffer of `size` bytes above 0, with anything in it."""
        kept = self._kept.get(size)
        if not kept:
            return memoryview(bytearray(size))
        self._kept_bytes -= size
        return kept.pop()

    def give_back(self, buffer: memoryview) -> None:
        """Nobody writes to the buffer any more. Buffers of other sizes make room for it."""
        size = buffer.nbytes
        while self._kept_bytes + size > self._max_kept_bytes and self._kept:
            other = next(iter(self._kept))
            self._kept_bytes -= other * len(self._kept.pop(other))
        if size <= self._max_kept_bytes:
            self._kept.setdefault(size, []).append(buffer)
            self._kept_bytes += size
