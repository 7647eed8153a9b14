"""The worker's side: pages that are distributed over ranks, behind the interface of local ones."""

import mmap
import os
import socket
import threading
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import numpy as np

from baton.engine.paged.runner import scratch_size
from baton.engine.sampling.draw import Sampled
from baton.engine.vllm.ranks.messages import (
    Clear,
    Done,
    Failed,
    ForgetDraws,
    Join,
    Read,
    Share,
    TakeDraws,
    Write,
    receive_by_worker,
    send,
)

JOIN_SECONDS = 60.0
"""Seconds in which ranks must join after the engine is created; they normally have by then."""
ANSWER_SECONDS = 30.0
"""Seconds for a copy of some blocks; a rank that takes longer is considered dead."""

_listeners = count()


class RankListener:
    """Socket on which ranks join while vLLM starts them. Close it, or pass it to `RankPages`."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.address = f"baton-ranks-{os.getpid()}-{next(_listeners)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{self.address}")
        self._socket.listen(ranks)
        self._socket.settimeout(JOIN_SECONDS)

    def accept_all(self) -> list[tuple[Join, socket.socket]]:
        """Return the connections of all ranks, by rank.

        Raises:
            RuntimeError: not all of them joined.
        """
        joined: list[tuple[Join, socket.socket]] = []
        try:
            while len(joined) < self.ranks:
                connection, _ = self._socket.accept()
                connection.settimeout(ANSWER_SECONDS)
                message = receive_by_worker(connection)
                if not isinstance(message, Join):
                    raise RuntimeError(f"a rank began with {type(message).__name__}")
                joined.append((message, connection))
        except (OSError, EOFError) as error:
            for _, connection in joined:
                connection.close()
            raise RuntimeError(f"{len(joined)} of {self.ranks} ranks joined: {error}") from error
        return sorted(joined, key=lambda each: each[0].rank)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


class RankPages:
    """Pages whose blocks are the concatenated parts of all ranks; also the first rank's sampled
    tokens.

    Copies are requested from all ranks together, and calls are serialized.
    """

    def __init__(self, listener: RankListener) -> None:
        """Share this process's memory with the ranks that joined.

        Raises:
            RuntimeError: a rank has disconnected, or cannot map the memory.
        """
        joined = listener.accept_all()
        self._ranks = [connection for _, connection in joined]
        self.backend, self.isa = joined[0][0].backend, joined[0][0].isa
        self._lock = threading.Lock()
        parts = [join.part_bytes for join, _ in joined]
        block_bytes = tuple(map(sum, zip(*parts, strict=True)))
        self._scratch_bytes = scratch_size(sum(block_bytes))
        size = 2 * self._scratch_bytes
        # Without a name in the file system, nothing is left behind, however this process ends.
        self._descriptor = os.memfd_create("baton-kv", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, size)
        self._map = mmap.mmap(self._descriptor, size)
        memory = memoryview(self._map)
        self.scratch = memory[: self._scratch_bytes]
        self._bounce = memory[self._scratch_bytes :]
        """Buffer for blocks whose source or destination is not in `scratch`."""
        self._base = np.frombuffer(memory, dtype=np.uint8).ctypes.data
        path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        offsets = tuple(0 for _ in block_bytes)
        for join, connection in joined:
            send(connection, Share(path, size, offsets, block_bytes))
            _check(receive_by_worker(connection))
            offsets = tuple(map(sum, zip(offsets, join.part_bytes, strict=True)))
        self.groups = [_RankGroup(self, group, size) for group, size in enumerate(block_bytes)]

    def read_pages(
        self, group: int, block_bytes: int, pages: Sequence[int], out: Sequence[memoryview]
    ) -> None:
        """Copy the bytes of each page of a group to its place in `out`."""
        most = self._scratch_bytes // block_bytes
        for first in range(0, len(pages), most):
            some = tuple(pages[first : first + most])
            with self._lock:
                self._ask_all(Read(group, some, self._scratch_bytes))
                for index, view in enumerate(out[first : first + most]):
                    at = index * block_bytes
                    view.cast("B")[:] = self._bounce[at : at + block_bytes]

    def write_pages(
        self, group: int, block_bytes: int, pages: Sequence[int], data: memoryview
    ) -> None:
        """Copy bytes into pages, one page after the other; from `scratch` without another copy."""
        source = np.frombuffer(data, dtype=np.uint8)
        at = source.ctypes.data - self._base
        if 0 <= at <= self._scratch_bytes - source.size:
            with self._lock:
                self._ask_all(Write(group, tuple(pages), at))
            return
        most = self._scratch_bytes // block_bytes
        for first in range(0, len(pages), most):
            some = tuple(pages[first : first + most])
            begin, size = first * block_bytes, len(some) * block_bytes
            with self._lock:
                self._bounce[:size] = data.cast("B")[begin : begin + size]
                self._ask_all(Write(group, some, self._scratch_bytes))

    def clear_page(self, group: int, page: int) -> None:
        """Fill a page with zeros."""
        with self._lock:
            self._ask_all(Clear(group, page))

    def take(self, name: str, position: int) -> tuple[Sampled, ...]:
        """Return the tokens sampled for an output position of a request, as of `sampled.Draws`."""
        with self._lock:
            return self._ask(self._ranks[:1], TakeDraws(name, position)).sampled

    def forget(self, name: str) -> None:
        """Drop the tokens that were sampled for a request."""
        with self._lock:
            self._ask_all(ForgetDraws(name))

    def close(self) -> None:
        """Stop the ranks' threads, and release the memory."""
        for connection in self._ranks:
            connection.close()
        os.close(self._descriptor)

    def _ask_all(self, message: msgspec.Struct) -> None:
        self._ask(self._ranks, message)

    def _ask(self, ranks: Sequence[socket.socket], message: msgspec.Struct) -> Done:
        """Send to all ranks before the first response is read, so that they copy at the same time.

        Raises:
            RuntimeError: a rank has disconnected, or reported a failure.
        """
        try:
            for connection in ranks:
                send(connection, message)
            answers: list[Any] = [receive_by_worker(connection) for connection in ranks]
        except (OSError, EOFError) as error:
            raise RuntimeError(f"a tensor-parallel rank disconnected: {error}") from error
        first, *_ = [_check(answer) for answer in answers]
        return first


class _RankGroup:
    """One group's pages, as of `PagesOfGroup`."""

    def __init__(self, pages: RankPages, group: int, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self._pages = pages
        self._group = group

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        self._pages.read_pages(self._group, self.block_bytes, pages, out)

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        self._pages.write_pages(self._group, self.block_bytes, pages, data)

    def clear_page(self, page: int) -> None:
        self._pages.clear_page(self._group, page)


def _check(answer: Join | Done | Failed) -> Done:
    if not isinstance(answer, Done):
        raise RuntimeError(f"a tensor-parallel rank cannot copy: {answer}")
    return answer
