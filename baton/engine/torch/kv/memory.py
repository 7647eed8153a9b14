"""Bytes of pages: copied in and out on any thread, and cleared on the engine's."""

from collections.abc import Sequence

import numpy as np
import torch

from baton.engine.torch.kv.pages import PagedKv


class PoolMemory:
    """Bytes of one group's pages, as of `GroupMemory`.

    Args:
        kv: the group's pool.
    """

    def __init__(self, kv: PagedKv) -> None:
        self._kv = kv
        self._bytes = kv.pool.view(len(kv.pool), -1).view(torch.uint8)
        """[pages, bytes]"""
        self._on_cpu = kv.pool.device.type == "cpu"

    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first one keeps the given number of leading tokens."""
        self._kv.clear(pages, kept_tokens)

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        """Copy the bytes of each page to its place in `out`."""
        rows: Sequence[int] = pages
        if self._on_cpu:
            found = self._bytes.numpy()
        else:
            found = self._bytes[list(pages)].cpu().numpy()
            rows = range(len(pages))
        for row, view in zip(rows, out, strict=True):
            np.copyto(np.frombuffer(view, dtype=np.uint8), found[row])

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        """Copy bytes into pages, one page after the other."""
        source = np.frombuffer(data, dtype=np.uint8).reshape(len(pages), -1)
        if self._on_cpu:
            target = self._bytes.numpy()
            for page, row in zip(pages, source, strict=True):
                np.copyto(target[page], row)
            return
        if data.readonly:  # torch allocates no such memory
            source = source.copy()
        self._bytes[list(pages)] = torch.from_numpy(source).to(self._bytes.device)

    def page_views(self, pages: Sequence[int]) -> Sequence[memoryview] | None:
        """Return the bytes of each page; None if they are not in main memory."""
        if not self._on_cpu:
            return None
        target = self._bytes.numpy()
        return [target[page].data for page in pages]
