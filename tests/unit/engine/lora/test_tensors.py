"""Tensors of a safetensors file in memory: those that safetensors itself reads, or an error."""

import re

import pytest
import torch
from safetensors.torch import save

from baton.engine.lora.config import AdapterError
from baton.engine.lora.tensors import file_tensors

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.arange(4.0).bfloat16(),
    "c": torch.empty(0, 5, dtype=torch.float16),
    "d": torch.tensor([0.1], dtype=torch.float64),
}


def test_tensors_are_those_that_were_saved_and_share_the_memory() -> None:
    memory = memoryview(bytearray(save(TENSORS, metadata={"format": "pt"})))
    found = file_tensors(memory)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    found["a"] += 1
    assert torch.equal(file_tensors(memory)["a"], TENSORS["a"] + 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb'"F32"', b'"I32"'),
        (rb"\[0,24\]", b"[4,28]"),
        (rb'"shape":\[2,3\]', b'"shape":[2,4]'),
        (rb'"shape"', b'"shade"'),
        (rb"^.{8}", (2**60).to_bytes(8, "little")),
        (rb"^.{8}.", bytes(9)),
    ],
)
def test_a_damaged_file_is_refused(old: bytes, new: bytes) -> None:
    data = save({"a": TENSORS["a"]})
    changed = re.sub(old, new, data, count=1, flags=re.DOTALL)
    assert len(changed) == len(data)
    assert changed != data
    with pytest.raises(AdapterError, match="damaged"):
        file_tensors(memoryview(bytearray(changed)))
