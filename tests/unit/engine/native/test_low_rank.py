"""The compiled product of low rank: that of plain torch, with bits that see no other row."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.lora.matrices import PartMatrices
from baton.engine.torch.lora.product import LowRankProduct

INPUTS, OUTPUTS, ROWS = 90, 300, 23
TYPES = (torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture(scope="module", params=[0, 2, -1])
def native(native_library: Path, request: pytest.FixtureRequest) -> LowRankProduct:
    """On the operators' own threads, or on torch's."""
    deterministic = request.param >= 0
    return NativeKernels(
        native_library, deterministic=deterministic, threads=max(0, request.param)
    ).low_rank()


def values(seed: int, dtype: torch.dtype, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def adapters(dtype: torch.dtype) -> list[list[PartMatrices]]:
    """Return adapters of one map of two modules: some have one, several ranks, or none."""

    def part(seed: int, first: int, outputs: int, rank: int) -> PartMatrices:
        a, b = values(seed, dtype, rank, INPUTS), values(seed + 1, dtype, outputs, rank)
        return PartMatrices(first, a, b, 0.5 + seed / 10)

    return [
        [part(0, 0, 261, 16), part(2, 261, 39, 5)],
        [part(4, 261, 39, 1)],
        [],
        [part(6, 0, 261, 24), part(8, 261, 39, 24)],
    ]


def computed(
    product: LowRankProduct, dtype: torch.dtype, owners: Sequence[int], chosen: Sequence[int]
) -> Tensor:
    """Return the outputs of rows, each with one of the chosen adapters, or -1."""
    x, y = values(20, dtype, ROWS, INPUTS), values(21, dtype, ROWS, OUTPUTS)
    rows = torch.tensor([r for one in chosen for r in range(ROWS) if owners[r] == one])
    ends = torch.tensor(
        [sum(owners.count(two) for two in chosen[: n + 1]) for n in range(len(chosen))]
    )
    made = adapters(dtype)
    product.add(x, y, product.join([product.pack(made[one]) for one in chosen]), rows, ends)
    return y


@pytest.mark.parametrize("dtype", TYPES)
def test_it_is_the_product_of_plain_torch(native: LowRankProduct, dtype: torch.dtype) -> None:
    owners = [(r * 7) % 5 - 1 for r in range(ROWS)]
    found = computed(native, dtype, owners, [0, 1, 2, 3])
    expected = computed(LowRankProduct(), dtype, owners, [0, 1, 2, 3])
    near = {torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-11}[dtype]
    assert torch.allclose(found, expected, rtol=near, atol=near * 20)
    base = [r for r in range(ROWS) if owners[r] in (-1, 2)]
    assert torch.equal(found[base], values(21, dtype, ROWS, OUTPUTS)[base])
    assert not torch.allclose(found, values(21, dtype, ROWS, OUTPUTS), atol=0.1)


@pytest.mark.parametrize("dtype", TYPES)
def test_bits_do_not_depend_on_other_rows_and_adapters(
    native: LowRankProduct, dtype: torch.dtype
) -> None:
    whole = computed(native, dtype, [(r * 7) % 5 - 1 for r in range(ROWS)], [3, 0, 2, 1])
    for row in range(ROWS):
        owner = (row * 7) % 5 - 1
        if owner < 0:
            continue
        alone = [owner if r == row else -1 for r in range(ROWS)]
        found = computed(native, dtype, alone, [owner])
        assert torch.equal(found[row].view(torch.int16), whole[row].view(torch.int16))


def test_what_does_not_fit_is_refused(native: LowRankProduct) -> None:
    dtype = torch.bfloat16
    joined = native.join([native.pack(adapters(dtype)[0])])
    x, y = values(0, dtype, 2, INPUTS), values(1, dtype, 2, OUTPUTS)
    one, end = torch.tensor([0]), torch.tensor([1])
    for arguments, words in (
        ((x, y, joined, torch.tensor([2]), end), "no row 2"),
        ((x, y, joined, one, torch.tensor([2])), "ends go up"),
        ((x, y, joined, one, torch.tensor([1, 1])), "one per adapter"),
        ((x[:, :-2], y, joined, one, end), "of so many inputs"),
        ((x, y[:, :-1].contiguous(), joined, one, end), "of y's columns"),
        ((x.float(), y, joined, one, end), "of its type"),
    ):
        with pytest.raises(RuntimeError, match=words):
            native.add(*arguments)
