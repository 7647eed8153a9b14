"""Adapters of all ranks: in this process, or in processes of their own."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import Any
from weakref import finalize

import msgspec

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.lora.config import AdapterConfig
from baton.engine.vllm.adapters.slots import RankSlots

Call = Callable[..., list[Any]]
"""Calls a function in every rank, with vLLM's worker and further arguments; returns by rank."""


class RankAdapters(ABC):
    """Slots of all ranks. Only the engine's thread calls it, except `read`."""

    @abstractmethod
    def adapted(self, modules: Iterable[str]) -> list[str]:
        """Return the modules to which adapters are added, as of `RankSlots`."""

    @abstractmethod
    def read(self, number: int, files: AdapterFiles) -> Any:
        """Return an adapter in the form that `put` takes; any thread may call it.

        Raises:
            AdapterError: the file is damaged.
        """

    @abstractmethod
    def put(self, read: Any) -> None:
        """Put an adapter into a slot of every rank."""

    @abstractmethod
    def remove(self, number: int) -> None:
        """Release an adapter's slots."""


class LocalAdapters(RankAdapters):
    """Of the one rank in this process.

    Args:
        call: of the core.
    """

    def __init__(self, call: Call) -> None:
        (self._slots,) = call(RankSlots)

    def adapted(self, modules: Iterable[str]) -> list[str]:
        return self._slots.adapted(modules)  # type: ignore[no-any-return]

    def read(self, number: int, files: AdapterFiles) -> Any:
        return self._slots.read(number, files)

    def put(self, read: Any) -> None:
        self._slots.put(read)

    def remove(self, number: int) -> None:
        self._slots.remove(number)


class _SharedFiles:
    """An adapter's files in memory that other processes open."""

    def __init__(self, number: int, files: AdapterFiles) -> None:
        self.number = number
        self.config = files.config.to_bytes()
        descriptor = os.memfd_create("baton-adapter", os.MFD_CLOEXEC)
        self.close = finalize(self, os.close, descriptor)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(files.weights)
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"


class SeparateAdapters(RankAdapters):
    """Of ranks in processes of their own, which read the bytes that this one verified.

    Args:
        call: of the core.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def adapted(self, modules: Iterable[str]) -> list[str]:
        return self._call(_adapted, list(modules))[0]  # type: ignore[no-any-return]

    def read(self, number: int, files: AdapterFiles) -> _SharedFiles:
        return _SharedFiles(number, files)

    def put(self, read: _SharedFiles) -> None:
        try:
            self._call(_put, read.number, read.config, read.path)
        finally:
            read.close()

    def remove(self, number: int) -> None:
        self._call(_remove, number)


def _adapted(worker: Any, modules: list[str]) -> list[str]:
    return RankSlots(worker).adapted(modules)


def _put(worker: Any, number: int, config: bytes, path: str) -> None:
    slots = RankSlots(worker)
    with Path(path).open("rb") as file:
        weights = memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY))
    files = AdapterFiles(msgspec.json.decode(config, type=AdapterConfig), weights)
    slots.put(slots.read(number, files))


def _remove(worker: Any, number: int) -> None:
    RankSlots(worker).remove(number)
