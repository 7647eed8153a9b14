"""Memory of the simulator's pages."""

import mmap
from collections.abc import Sequence

TOKEN_BYTES = 16
"""KV bytes of a token, in each group of layers but those with states."""


class SimPages:
    """Pages of one group in anonymous memory, which is allocated lazily.

    Args:
        count: number of pages.
        page_bytes: bytes of each.
    """

    def __init__(self, count: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._map = mmap.mmap(-1, count * page_bytes)
        self.memory = memoryview(self._map)

    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first one keeps the KV of its leading tokens."""
        kept = kept_tokens * TOKEN_BYTES
        for page in pages:
            at = page * self.page_bytes
            self.memory[at + kept : at + self.page_bytes] = bytes(self.page_bytes - kept)
            kept = 0

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        """Copy the bytes of each page to its place in `out`."""
        size = self.page_bytes
        for page, view in zip(pages, out, strict=True):
            view.cast("B")[:] = self.memory[page * size : (page + 1) * size]

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        """Copy bytes into pages, one page after the other."""
        size = self.page_bytes
        source = data.cast("B")
        for i, page in enumerate(pages):
            self.memory[page * size : (page + 1) * size] = source[i * size : (i + 1) * size]

    def page_views(self, pages: Sequence[int]) -> Sequence[memoryview]:
        """Return the bytes of each page."""
        size = self.page_bytes
        return [self.memory[page * size : (page + 1) * size] for page in pages]

    def slot(self, page: int, start: int, end: int) -> memoryview:
        """Return bytes of a page.

        Raises:
            IndexError: the entry of a block without a page was used.
        """
        if page < 0:
            raise IndexError("a block was read or written that the sequence gave up")
        at = page * self.page_bytes
        return self.memory[at + start : at + end]

    def close(self) -> None:
        """Release the memory."""
        self.memory.release()
        self._map.close()
