"""Tensors of a safetensors file in memory, which they share."""

from math import prod

import msgspec
import torch
from torch import Tensor

from baton.engine.lora.config import AdapterError

_LENGTH_BYTES = 8
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class _TensorEntry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def file_tensors(file: memoryview) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, without a copy.

    safetensors itself copies all of them, and no other thread runs Python meanwhile.

    Args:
        file: whole, in writable memory.

    Raises:
        AdapterError: it is damaged, or has tensors other than floats.
    """
    begin = _LENGTH_BYTES + int.from_bytes(file[:_LENGTH_BYTES], "little")
    try:
        header = msgspec.json.decode(file[_LENGTH_BYTES:begin], type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {
            name: msgspec.json.decode(each, type=_TensorEntry) for name, each in header.items()
        }
        return {name: _tensor(file[begin:], each) for name, each in entries.items()}
    except (msgspec.DecodeError, ValueError, KeyError) as error:
        raise AdapterError(f"its safetensors file is damaged: {error}") from error


def _tensor(data: memoryview, entry: _TensorEntry) -> Tensor:
    dtype, (first, end) = _DTYPES[entry.dtype], entry.data_offsets
    count = prod(entry.shape)
    if not 0 <= first <= end <= len(data) or end - first != count * dtype.itemsize:
        raise ValueError(f"{entry} does not fit into {len(data)} bytes")
    if not count:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=first).view(entry.shape)
