"""The rank's side: a thread that copies the rank's part of blocks as long as the worker lives."""

import mmap
import os
import socket
import threading

from baton.engine.vllm.pages import KvPages
from baton.engine.vllm.ranks.messages import (
    Clear,
    Done,
    Failed,
    ForgetDraws,
    Join,
    Read,
    Share,
    TakeDraws,
    ToRank,
    Write,
    receive_by_rank,
    send,
)
from baton.engine.vllm.sampler import LocalDraws
from baton.telemetry.logs import get_logger

log = get_logger(__name__)


def start_agent(address: str, rank: int, pages: KvPages, backend: str, isa: str) -> None:
    """Join the worker at an abstract Unix address, and serve its copies on a thread."""
    worker = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    worker.connect(f"\0{address}")
    send(worker, Join(rank, tuple(group.block_bytes for group in pages.groups), backend, isa))
    agent = _Agent(worker, pages)
    threading.Thread(target=agent.run, name="kv-rank", daemon=True).start()


class _Agent:
    """Serves one worker, one message at a time."""

    def __init__(self, worker: socket.socket, pages: KvPages) -> None:
        self._worker = worker
        self._groups = pages.groups
        self._draws = LocalDraws()
        self._memory = memoryview(b"")
        self._offsets: tuple[int, ...] = ()
        self._block_bytes: tuple[int, ...] = ()

    def run(self) -> None:
        """Serve until the worker disconnects."""
        try:
            while True:
                message = receive_by_rank(self._worker)
                try:
                    answer: Done | Failed = self._handle(message)
                except (KeyError, ValueError, IndexError, RuntimeError, OSError) as error:
                    answer = Failed(f"{type(error).__name__}: {error}")
                send(self._worker, answer)
        except (EOFError, OSError):
            log.info("engine.rank.left")
        finally:
            self._worker.close()

    def _handle(self, message: ToRank) -> Done:
        match message:
            case Share():
                descriptor = os.open(message.path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    self._memory = memoryview(mmap.mmap(descriptor, message.size))
                finally:
                    os.close(descriptor)
                self._offsets, self._block_bytes = message.offsets, message.block_bytes
            case Read(group=group, pages=pages, at=at):
                places = [self._part(group, at, index) for index in range(len(pages))]
                self._groups[group].read_pages(pages, places)
            case Write(group=group, pages=pages, at=at):
                for index, page in enumerate(pages):
                    self._groups[group].write_pages((page,), self._part(group, at, index))
            case Clear():
                self._groups[message.group].clear_page(message.page)
            case TakeDraws():
                return Done(self._draws.take(message.name, message.position))
            case ForgetDraws():
                self._draws.forget(message.name)
        return Done()

    def _part(self, group: int, at: int, index: int) -> memoryview:
        """Return this rank's part of a block in shared memory."""
        begin = at + index * self._block_bytes[group] + self._offsets[group]
        return self._memory[begin : begin + self._groups[group].block_bytes]
