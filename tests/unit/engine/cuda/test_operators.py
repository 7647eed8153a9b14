"""The operators for CUDA, run by Triton's interpreter on a CPU: `make test-cuda`.

The interpreter computes no bfloat16 products: float16 stands in for it. Which bits a GPU's products
have it does not tell; that no value depends on the batch it does, for products whose rows do not
depend on their place in a tile.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.cuda
CPU = torch.device("cpu")
BLOCK = 16
TOKENS = 150
PAGES = -(-TOKENS // BLOCK)


@pytest.fixture(autouse=True)
def rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply in float64, and round: numpy, which the interpreter multiplies with, orders a row's
    sums in float32 by its place in the tile where OpenBLAS takes its kernels for AVX2."""
    from triton.runtime import interpreter

    def create_dot(builder: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        product = np.matmul(a.data, b.data, dtype=np.float64).astype(d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


@pytest.mark.parametrize(("outputs", "inputs"), [(96, 40), (64, 128), (70, 1000)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_map_sees_one_row_at_a_time(outputs: int, inputs: int, biased: bool) -> None:
    from baton.engine.cuda.linear import TiledLinear

    weight, bias = draw(outputs, inputs, seed=1), draw(outputs, seed=2) if biased else None
    x = draw(130, inputs)
    by = TiledLinear(weight, bias)
    found = by(x)
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert ((found.double() - expected).abs() <= 2e-3 * (1 + expected.abs())).all()
    for rows in (1, 2, 31, 64, 65, 129):
        assert torch.equal(by(x[:rows]), found[:rows])
    assert by(x[:0]).shape == (0, outputs)


@pytest.mark.parametrize(
    ("outputs", "inputs", "parts"), [(64, 100, 1), (64, 4096, 16), (20000, 4096, 1)]
)
def test_parts_are_of_the_weights_shape(outputs: int, inputs: int, parts: int) -> None:
    from baton.engine.cuda.linear import part_count

    assert part_count(outputs, inputs) == parts


def compute(
    heads: int,
    kv_heads: int,
    size: int,
    steps: Sequence[Sequence[tuple[int, int, int]]],
    **scores: Any,
) -> Tensor:
    """Return the attention [sequences, tokens, heads · size] of two sequences computed in steps of
    (sequence, first position, end)."""
    from baton.engine.cuda.kernels import TritonKernels
    from baton.engine.torch.attention import ScoreOptions
    from baton.engine.torch.kernels import Heads
    from baton.engine.torch.kv.pages import PagedKv, Query

    kernels = TritonKernels(CPU)
    kv = PagedKv(2 * PAGES, 2, BLOCK, heads, kv_heads, size, torch.float16, CPU, kernels)
    qkv = draw(2, TOKENS, (heads + 2 * kv_heads) * size)
    found = torch.zeros(2, TOKENS, heads * size, dtype=torch.float16)
    for chunks in steps:
        queries = [Query(range(s * PAGES, (s + 1) * PAGES), a, b, a) for s, a, b in chunks]
        step = kv.plan([[query] for query in queries])
        turn = (torch.ones(1, 1, 1).half(), torch.zeros(1, 1, 1).half())
        made = Heads(1, turn, None, None, 1e-6, ScoreOptions(**scores))
        rows = kernels.attend(kv, step, made, torch.cat([qkv[s, a:b] for s, a, b in chunks]))
        for (s, a, b), part in zip(chunks, rows.split([b - a for _, a, b in chunks]), strict=True):
            found[s, a:b] = part
    return found


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(4, 2, 16), (6, 2, 40), (2, 2, 64)])
def test_attention_sees_what_came_before_and_nothing_else(
    heads: int, kv_heads: int, size: int
) -> None:
    from torch.nn.functional import scaled_dot_product_attention

    whole = compute(heads, kv_heads, size, [[(0, 0, TOKENS)], [(1, 0, TOKENS)]])
    qkv = draw(2, TOKENS, (heads + 2 * kv_heads) * size).double()
    q, k, v = (
        part.view(2, TOKENS, -1, size).transpose(1, 2)
        for part in qkv.split([heads * size, kv_heads * size, kv_heads * size], dim=2)
    )
    expected = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    expected = expected.transpose(1, 2).reshape(whole.shape)
    assert ((whole.double() - expected).abs() <= 3e-3).all()
    for first, second in (([1] * 20 + [70], [64, 1, 17]), ([33, 2, 63], [149])):
        chunks = []
        for number, sizes in enumerate((first, second)):
            ends = [end for end in accumulate(sizes) if end < TOKENS]
            chunks.append([(number, *cut) for cut in pairwise([0, *ends, TOKENS])])
        count = max(map(len, chunks))
        steps = [[each[i] for each in chunks if i < len(each)] for i in range(count)]
        assert torch.equal(compute(heads, kv_heads, size, steps), whole)


@pytest.mark.parametrize(
    ("window", "softcap", "sinks"), [(1, 0, True), (40, 4, False), (70, 4, True)]
)
def test_windows_softcaps_and_sinks_see_what_they_say(
    window: int, softcap: float, sinks: bool
) -> None:
    heads, kv_heads, size = 4, 2, 16
    scores = {
        "scale": 0.4,
        "window": window,
        "softcap": softcap,
        "sinks": draw(heads, seed=4) if sinks else None,
    }
    whole = compute(heads, kv_heads, size, [[(0, 0, TOKENS)], [(1, 0, TOKENS)]], **scores)
    qkv = draw(2, TOKENS, (heads + 2 * kv_heads) * size).double()
    q, k, v = (
        part.view(2, TOKENS, -1, size).transpose(1, 2)
        for part in qkv.split([heads * size, kv_heads * size, kv_heads * size], dim=2)
    )
    k, v = (each.repeat_interleave(heads // kv_heads, 1) for each in (k, v))
    found = q @ k.transpose(2, 3) * 0.4
    if softcap:
        found = softcap * torch.tanh(found / softcap)
    at = torch.arange(TOKENS)
    seen = (at <= at[:, None]) & (at > at[:, None] - window)
    found = found.masked_fill(~seen, -torch.inf)
    if sinks:
        rest = draw(heads, seed=4).double().view(1, heads, 1, 1).expand(2, -1, TOKENS, 1)
        found = torch.cat((found, rest), -1)
    expected = (found.softmax(-1)[..., :TOKENS] @ v).transpose(1, 2).reshape(whole.shape)
    assert ((whole.double() - expected).abs() <= 3e-3).all()
    steps = [[(0, at, at + 1)] for at in range(100)] + [[(0, 100, TOKENS), (1, 0, TOKENS)]]
    assert torch.equal(compute(heads, kv_heads, size, steps, **scores), whole)
