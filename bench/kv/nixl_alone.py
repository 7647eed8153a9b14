"""Bare NIXL: pieces written from one process into another."""

import ctypes
import mmap
import multiprocessing
import os
import secrets
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench.kv.sizes import COUNT
from services.kvstore.peers.transports.nixl.agent import LIBRARIES


class NixlAlone:
    """The process that writes, and another one that is written to, each with this much memory."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_target, args=(theirs, memory_bytes), daemon=True)
        self._process.start()
        self._agent, self._address, self._memory = _agent("source", memory_bytes)
        metadata, self._remote = self._pipe.recv()
        self._name = self._agent.add_remote_agent(metadata)
        self._next = 0

    def write(self, size: int, batches: int) -> float:
        """Write `batches` times COUNT pieces; return the seconds until the target knew of all.

        As in the stores, it cycles through all of its memory, and writes fresh bytes.
        """
        batch_descriptors = [self._batch(size) for _ in range(batches)]
        self._pipe.send(batches)
        began = time.perf_counter()
        handles = []
        for ours, theirs in batch_descriptors:
            handle = self._agent.initialize_xfer("WRITE", ours, theirs, self._name, b"done")
            self._agent.transfer(handle)
            handles.append(handle)
        while any(self._agent.check_xfer_state(handle) == "PROC" for handle in handles):
            pass
        while not self._pipe.poll():
            self._agent.get_new_notifs()  # the notification may need a push, too
        seconds = time.perf_counter() - began
        self._pipe.recv()
        for handle in handles:
            handle.release()
        return seconds

    def close(self) -> None:
        """End the other process."""
        self._pipe.send(0)
        self._process.join(10)

    def _batch(self, size: int) -> list[Any]:
        """Write new bytes; return the descriptors of their positions here and at the target."""
        if self._next + COUNT * size > self._memory_bytes:
            self._next = 0
        begin, self._next = self._next, self._next + COUNT * size
        for piece in range(begin, self._next, size):
            self._memory[piece : piece + size] = secrets.token_bytes(64) * (size // 64)
        at = np.arange(begin, self._next, size, dtype=np.uint64)
        return [
            self._agent.get_xfer_descs(
                np.stack([at + np.uint64(base), np.full_like(at, size), np.zeros_like(at)], 1),
                "DRAM",
            )
            for base in (self._address, self._remote)
        ]


def _agent(name: str, memory_bytes: int) -> tuple[Any, int, mmap.mmap]:
    """Return an agent with memory like an arena's, the memory's address, and the memory."""
    library: Any = import_module(next(name for name in LIBRARIES if find_spec(name)))
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        os.truncate(file.fileno(), memory_bytes)
        memory = mmap.mmap(file.fileno(), memory_bytes)
    for at in range(0, memory_bytes, mmap.PAGESIZE):
        memory[at] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    agent = library.nixl_agent(name, library.nixl_agent_config(enable_prog_thread=False))
    agent.register_memory([(address, memory_bytes, 0, "")], "DRAM")
    return agent, address, memory


def _target(pipe: Connection, memory_bytes: int) -> None:
    """Be the written-to process: poll without pause while something is expected."""
    agent, address, _memory = _agent("target", memory_bytes)
    pipe.send((agent.get_agent_metadata(), address))
    while expected := pipe.recv():
        while expected:
            expected -= sum(len(told) for told in agent.get_new_notifs().values())
        pipe.send(True)
