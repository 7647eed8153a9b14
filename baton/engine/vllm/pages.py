"""Pages of vLLM's KV cache as bytes: a block of a group is the same page of each of its layers,
concatenated.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.paged.runner import PINNED_SCRATCH_BYTES, scratch_size
from baton.engine.vllm.groups.kinds import order_of
from baton.host.aligned_memory import aligned_memory
from baton.settings import StartupError

Bytes = NDArray[np.uint8]


class PagesOfGroup(Protocol):
    """Memory of one group's blocks. Copies run on any thread."""

    block_bytes: int

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None: ...
    def write_pages(self, pages: Sequence[int], data: memoryview) -> None: ...
    def clear_page(self, page: int) -> None: ...


class KvPages(Protocol):
    """Memory of the blocks of all groups, in Baton's order."""

    scratch: memoryview

    @property
    def groups(self) -> Sequence[PagesOfGroup]: ...

    def close(self) -> None: ...


def page_rows(kv_caches: Mapping[str, Tensor], layers: Iterable[str], pages: int) -> list[Tensor]:
    """Return the KV tensors of layers as bytes, [pages, bytes] each, in the order of the names.

    Layers of other groups may have the same memory, in other pages of it.

    Args:
        kv_caches: tensors by layer.
        layers: of one group.
        pages: in each tensor, which may divide them further.

    Raises:
        StartupError: a page is not contiguous in each of them.
    """
    rows: list[Tensor] = []
    seen: set[int] = set()
    for name in layers:
        tensor = kv_caches[name]
        parts = tensor.shape[0] // pages
        dense = tensor[0].is_contiguous() and (parts == 1 or tensor.stride(0) == tensor[0].numel())
        if tensor.dim() < 2 or parts * pages != tensor.shape[0] or not dense:
            raise StartupError(
                f"vLLM keeps the KV of {name} in a shape that cannot be transferred by block: this "
                "model, or this attention backend, is not supported."
            )
        if tensor.data_ptr() in seen:  # layers that share their KV
            continue
        seen.add(tensor.data_ptr())
        size = (pages, parts * tensor[0].numel())
        rows.append(tensor.as_strided(size, (parts * tensor.stride(0), 1)).view(torch.uint8))
    return rows


class CpuPages:
    """Pages of a group in this process's memory."""

    def __init__(self, rows: Sequence[Tensor]) -> None:
        self._layers: list[Bytes] = [layer.numpy() for layer in rows]
        self.block_bytes = sum(layer.shape[1] for layer in self._layers)

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        """Copy the bytes of each page to its place in `out`."""
        for page, view in zip(pages, out, strict=True):
            data = np.frombuffer(view, dtype=np.uint8)
            at = 0
            for layer in self._layers:
                end = at + layer.shape[1]
                np.copyto(data[at:end], layer[page])
                at = end

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        """Copy bytes into pages, one page after the other."""
        source = np.frombuffer(data, dtype=np.uint8)
        at = 0
        for page in pages:
            for layer in self._layers:
                end = at + layer.shape[1]
                np.copyto(layer[page], source[at:end])
                at = end

    def clear_page(self, page: int) -> None:
        """Fill a page with zeros."""
        for layer in self._layers:
            layer[page] = 0

    def close(self) -> None:
        """Release the memory."""
        self._layers = []


class PinnedMemory:
    """Memory of the host from which a GPU copies, and the stream on which it does.

    Args:
        device: the GPU.
        block_bytes: bytes of a block of all groups.
    """

    def __init__(self, device: torch.device, block_bytes: int) -> None:
        size = scratch_size(block_bytes, PINNED_SCRATCH_BYTES)
        self.device = device
        self.pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.bounce = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        """Buffer for blocks whose source or destination is not pinned."""
        self.lock = threading.Lock()
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class CudaPages:
    """Pages of a group on a GPU, copied through pinned memory on a separate stream.

    Blocks that are read were computed in a step whose tokens the host has received, and blocks that
    are written belong to sequences that no kernel reads before `start`. It therefore suffices to
    wait for the copies themselves, and never for the model's stream.
    """

    def __init__(self, rows: Sequence[Tensor], memory: PinnedMemory) -> None:
        self._layers = list(rows)
        self.block_bytes = sum(layer.shape[1] for layer in rows)
        self._device = memory.device
        self._pinned = memory.pinned
        self._bounce = memory.bounce
        self._lock = memory.lock
        self._stream = memory.stream

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        """Copy the bytes of each page to its place in `out`."""
        most = self._bounce.numel() // self.block_bytes
        for first in range(0, len(pages), most):
            some = pages[first : first + most]
            with self._lock:
                with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                    for place, row in self._places(some, self._bounce):
                        place.copy_(row, non_blocking=True)
                    self._stream.synchronize()
                bounce = self._bounce.numpy()
                for index, view in enumerate(out[first : first + most]):
                    at = index * self.block_bytes
                    data = np.frombuffer(view, dtype=np.uint8)
                    np.copyto(data, bounce[at : at + self.block_bytes])

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        """Copy bytes into pages, one page after the other; from `scratch` without a host copy."""
        source = np.frombuffer(data, dtype=np.uint8)
        at = source.ctypes.data - self._pinned.data_ptr()
        if 0 <= at <= self._pinned.numel() - source.size:
            self._write(pages, self._pinned[at : at + source.size])
            return
        most = self._bounce.numel() // self.block_bytes
        for first in range(0, len(pages), most):
            some = pages[first : first + most]
            at, size = first * self.block_bytes, len(some) * self.block_bytes
            with self._lock:
                np.copyto(self._bounce.numpy()[:size], source[at : at + size])
                self._write(some, self._bounce)

    def clear_page(self, page: int) -> None:
        """Fill a page with zeros."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            for layer in self._layers:
                layer[page].zero_()
            self._stream.synchronize()

    def close(self) -> None:
        """Release the memory."""
        self._stream.synchronize()
        self._layers = []

    def _write(self, pages: Sequence[int], source: Tensor) -> None:
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            for place, row in self._places(pages, source):
                row.copy_(place, non_blocking=True)
            self._stream.synchronize()

    def _places(self, pages: Sequence[int], memory: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the location of each layer's part of each page: on the host, and on the device."""
        at = 0
        for page in pages:
            for layer in self._layers:
                end = at + layer.shape[1]
                yield memory[at:end], layer[page]
                at = end


@dataclass(slots=True)
class LocalPages:
    """Pages of this process."""

    groups: Sequence[CpuPages | CudaPages]
    scratch: memoryview

    def close(self) -> None:
        """Release the memory."""
        for group in self.groups:
            group.close()


def local_pages(kv_caches: Mapping[str, Tensor], config: Any) -> KvPages:
    """Return the pages of the KV tensors of this process.

    Args:
        kv_caches: tensors by layer.
        config: vLLM's `KVCacheConfig`.

    Raises:
        StartupError: there are none, or they cannot be copied block by block.
    """
    if not kv_caches:
        raise StartupError("This model keeps no KV in pages, which is not supported.")
    found = config.kv_cache_groups
    rows = [
        page_rows(kv_caches, found[group].layer_names, config.num_blocks)
        for group in order_of([each.kv_cache_spec for each in found])
    ]
    block_bytes = sum(layer.shape[1] for layers in rows for layer in layers)
    device = rows[0][0].device
    if device.type == "cpu":
        scratch = aligned_memory(scratch_size(block_bytes))
        return LocalPages([CpuPages(layers) for layers in rows], scratch)
    memory = PinnedMemory(device, block_bytes)
    scratch = memoryview(memory.pinned.numpy())  # type: ignore[arg-type]
    return LocalPages([CudaPages(layers, memory) for layers in rows], scratch)
