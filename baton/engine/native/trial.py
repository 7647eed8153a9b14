"""Try a library of the operators on this machine: `python -m baton.engine.native.trial LIBRARY`.

It computes a product and an attention with known results. It exits with a message if they differ,
or by a signal if the machine lacks the instructions. `tried.py` starts it.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.kernels import Heads, Kernels, PlainKernels
from baton.engine.torch.kv.pages import PagedKv, Query

_CPU = torch.device("cpu")
_TOLERANCE = 3e-2


def documented(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return x @ weight.T as tiles are documented to sum it, [rows, outputs] in float32.

    Of 32 values together, a fused sum of the even ones and one of the odd ones, which are added to
    each other and then to the sum of the earlier values (Intel 64 and IA-32 Architectures Software
    Developer's Manual, vol. 2, TDPBF16PS).

    Args:
        x: [rows, inputs], inputs a multiple of 32; values that bfloat16 holds, not far from 1, so
            that a product added in float64 is exact and rounded once.
        weight: [outputs, inputs], likewise.
    """
    rows, values = x.astype(np.float64), weight.astype(np.float64)
    total = np.zeros((len(x), len(weight)), np.float32)
    for begin in range(0, x.shape[1], 32):
        parts = []
        for offset in (0, 1):
            part = np.zeros_like(total)
            for i in range(begin + offset, begin + 32, 2):
                product = rows[:, i, None] * values[None, :, i]
                part = (part.astype(np.float64) + product).astype(np.float32)
            parts.append(part)
        total = total + (parts[0] + parts[1])
    return total


def _check_sums() -> None:
    operators = torch.ops.baton_native
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(100, 1120, generator=draw).bfloat16()
    x = torch.randn(70, 1120, generator=draw).bfloat16()
    panels = operators.pack(weight)
    expected = documented(x.float().numpy(), weight.float().numpy())
    found = operators.linear(x, panels, None, 100, 0)
    if not torch.equal(found, torch.from_numpy(expected).bfloat16()):
        sys.exit("a product is not what the tiles are documented to compute")
    for row, sums in enumerate(torch.from_numpy(expected)):
        # bfloat16 hides a sum's last bits: the remainder shows them.
        if operators.linear(x[row : row + 1], panels, -sums, 100, 0).count_nonzero():
            sys.exit("a product's sums are not in the order in which tiles are documented to add")


def _check_attention(library: Path) -> None:
    for heads, kv_heads, size in ((8, 2, 64), (6, 2, 40), (4, 4, 128)):
        draw = torch.Generator().manual_seed(size)
        lines = torch.randn(150, (heads + 2 * kv_heads) * size, generator=draw).bfloat16()
        shape = (heads, kv_heads, size)
        whole = _attended(NativeKernels(library, deterministic=True), shape, lines, [150])
        plain = _attended(PlainKernels(), shape, lines, [150])
        if not ((whole - plain).abs() <= _TOLERANCE * (1 + plain.abs())).all():
            sys.exit("attention is not that of the plain kernels")
        if not torch.equal(
            _attended(NativeKernels(library, deterministic=True), shape, lines, [49] + [1] * 101),
            whole,
        ):
            sys.exit("attention of single tokens is not that of a chunk, in bits")


def _attended(
    kernels: Kernels, shape: tuple[int, int, int], lines: Tensor, counts: list[int]
) -> Tensor:
    """Return the attention of a sequence computed in steps of `counts` tokens, in float32."""
    heads, kv_heads, size = shape
    kv = PagedKv(10, 1, 16, heads, kv_heads, size, torch.bfloat16, _CPU, kernels)
    kv.pool.zero_()
    found, at = [], 0
    for count in counts:
        step = kv.plan([[Query(range(10), at, at + count, at)]])
        flat = torch.zeros(count, 1, size // 2, dtype=torch.bfloat16)
        kind = Heads(0, (flat + 1, flat), None, None, 1e-6)
        found.append(kernels.attend(kv, step, kind, lines[at : at + count].clone()).float())
        at += count
    return torch.cat(found)


def _main() -> None:
    library = Path(sys.argv[1])
    NativeKernels(library)
    torch.set_num_threads(2)  # each thread has its own tiles
    _check_sums()
    _check_attention(library)


if __name__ == "__main__":
    _main()
