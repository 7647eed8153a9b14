"""Compiled operators: what they compute beside the plain ones, and what happens without them."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from baton.compiled.files import DIRECTORY_ENV, VARIANT_ENV
from baton.engine.checkpoint.model_options import Activation
from baton.engine.factory import create_engine
from baton.engine.native import build as native_build
from baton.engine.native import variants
from baton.engine.native.kernels import NativeKernels
from baton.engine.native.variants import VARIANTS
from baton.engine.torch.attention import PLAIN_SCORES, AttentionStep, ScoreOptions
from baton.engine.torch.kernels import Heads, Kernels, PlainKernels
from baton.engine.torch.kv.pages import PagedKv, Query
from baton.engine.torch.linear import make_linear, packs
from baton.settings import EngineSettings, StartupError
from tests.support.doubles.compiler import make_compiler

CPU = torch.device("cpu")
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}
WINDOWS = (0, 1, 17, 64, 100)
"""Windows of these tests; 0: the whole context."""
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
# heads, kv_heads, head_size, block_tokens: groups of 1 to 8, sizes that fill no vector, any block.
SHAPES = [
    (4, 4, 64, 16),
    (8, 1, 16, 32),
    (6, 2, 128, 16),
    (4, 2, 24, 16),
    (10, 2, 40, 48),
    (4, 4, 80, 96),
]


def random(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def special(window: int, heads: int, dtype: torch.dtype) -> ScoreOptions:
    """Return scores with all that there is, each in some windows."""
    sinks = 2 * random(heads, dtype=dtype, seed=5) if window in (0, 17, 100) else None
    return ScoreOptions(0.3, window, 4.0 if window in (1, 17, 64) else 0.0, sinks)


def attended(
    kernels: Kernels,
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    normed: bool,
    scores: ScoreOptions = PLAIN_SCORES,
) -> tuple[list[Tensor], Tensor]:
    """Attention of four sequences over several steps, and the KV of all pages after them."""
    heads, kv_heads, size, block = shape
    # What the longest holds and a page more, for each; a few belong to none.
    own = 142 // block + 2
    pages = 4 * own + 3
    kv = PagedKv(pages, 2, block, heads, kv_heads, size, dtype, CPU, kernels, scores.window)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(1)).tolist()
    norms = [1 + 0.1 * random(size, dtype=dtype, seed=s) for s in (2, 3)] if normed else [None] * 2
    done = [0, 0, 0, 0]
    found = []
    for number, counts in enumerate([(90, 17, 1, 33), (1, 40, 1, 2), (50, 1, 1, 1), (1, 1, 1, 1)]):
        queries = [
            Query(order[i * own : i * own + own], at, at + count, at)
            for i, (at, count) in enumerate(zip(done, counts, strict=True))
        ]
        lines = [
            random(count, (heads + 2 * kv_heads) * size, dtype=dtype, seed=10 * number + i)
            for i, count in enumerate(counts)
        ]
        groups = kv.group(queries)
        sequence = [i for group in groups for i in group]
        step = kv.plan([[queries[i] for i in group] for group in groups])
        out = kernels.attend(
            kv,
            step,
            Heads(1, rotation(step, size, dtype), norms[0], norms[1], 1e-6, scores),
            torch.cat([lines[i] for i in sequence]),
        )
        parts = dict(zip(sequence, out.split([counts[i] for i in sequence]), strict=True))
        found.extend(parts[i] for i in range(4))
        done = [at + count for at, count in zip(done, counts, strict=True)]
    return found, tokens_of(kv)


def tokens_of(kv: PagedKv) -> Tensor:
    """Return the pool as [pages, layers, 2, block_tokens, kv_heads, head_size], of any format."""
    pages, layers = kv.pool.shape[:2]
    block, heads, size = kv.block_tokens, kv.kv_heads, kv.head_size
    if kv.kernels.block_format == PlainKernels.block_format:
        return kv.pool
    values = 2 if kv.pool.dtype is torch.bfloat16 else 1
    keys, held = kv.pool.unbind(2)
    k = keys.view(pages, layers, heads, size // values, block, values).permute(0, 1, 4, 2, 3, 5)
    v = held.view(pages, layers, heads, block // values, size, values).permute(0, 1, 3, 5, 2, 4)
    both = [each.reshape(pages, layers, block, heads, size) for each in (k, v)]
    return torch.stack(both, dim=2)


def rotation(step: AttentionStep, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    angles = step.positions.double().view(-1, 1, 1) / torch.arange(1, size // 2 + 1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def assert_near(found: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCES[found.dtype]
    difference = (found.double() - expected.double()).abs()
    assert (difference <= tolerance * (1 + expected.double().abs())).all(), difference.max()


@DTYPES
@pytest.mark.parametrize("normed", [False, True], ids=["", "q/k norms"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_is_that_of_the_plain_kernels(
    native_library: Path, shape: tuple[int, int, int, int], dtype: torch.dtype, normed: bool
) -> None:
    expected, plain_kv = attended(PlainKernels(), shape, dtype, normed)
    for threads in (1, 2):
        with torch_threads(threads):
            found, kv = attended(NativeKernels(native_library), shape, dtype, normed)
        for ours, theirs in zip(found, expected, strict=True):
            assert_near(ours, theirs)
        assert_near(kv, plain_kv)


@DTYPES
@pytest.mark.parametrize(
    ("shape", "window"), [*zip(SHAPES, WINDOWS, strict=False), (SHAPES[0], 100)], ids=str
)
def test_windows_softcaps_and_sinks_are_those_of_the_plain_kernels(
    native_library: Path, shape: tuple[int, int, int, int], window: int, dtype: torch.dtype
) -> None:
    scores = special(window, shape[0], dtype)
    expected, _ = attended(PlainKernels(), shape, dtype, True, scores)
    found, _ = attended(NativeKernels(native_library), shape, dtype, True, scores)
    for ours, theirs in zip(found, expected, strict=True):
        assert_near(ours, theirs)
    unlike, _ = attended(PlainKernels(), shape, dtype, True)
    assert any((a - b).abs().max() > 0.1 for a, b in zip(expected, unlike, strict=True))


@DTYPES
@pytest.mark.parametrize("native", [False, True], ids=["plain", "native"])
def test_clearing_keeps_leading_tokens_only(
    native_library: Path, dtype: torch.dtype, native: bool
) -> None:
    kernels = NativeKernels(native_library) if native else PlainKernels()
    kv = PagedKv(4, 2, 16, 4, 2, 24, dtype, CPU, kernels)
    for kept in (0, 1, 2, 7, 8, 15):
        kv.pool[:] = random(*kv.pool.shape, dtype=dtype, seed=kept)
        expected = tokens_of(kv).clone()
        kv.clear([2, 0], kept_tokens=kept)
        expected[2, :, :, kept:] = 0
        expected[0] = 0
        assert torch.equal(tokens_of(kv), expected)
    before = kv.pool.clone()
    kv.clear([], kept_tokens=3)
    assert torch.equal(kv.pool, before)


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_chunk_s_attention_is_its_tokens_one_by_one(
    native_library: Path, shape: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    assert_alike(native_library, shape, dtype, PLAIN_SCORES)


@DTYPES
@pytest.mark.parametrize(
    ("shape", "window"), [*zip(SHAPES, WINDOWS, strict=False), (SHAPES[0], 100)], ids=str
)
def test_a_chunk_s_attention_with_a_window_is_its_tokens_one_by_one(
    native_library: Path, shape: tuple[int, int, int, int], window: int, dtype: torch.dtype
) -> None:
    assert_alike(native_library, shape, dtype, special(window, shape[0], dtype))


def assert_alike(
    native_library: Path, shape: tuple[int, int, int, int], dtype: torch.dtype, scores: ScoreOptions
) -> None:
    heads, kv_heads, size, block = shape
    kernels = NativeKernels(native_library)
    tokens, pages = 200, -(-200 // block)
    lines = random(tokens, (heads + 2 * kv_heads) * size, dtype=dtype, seed=7)
    # Scores of all sizes: some weights are next to nothing, and the best changes now and then.
    lines *= torch.linspace(0.5, 5, tokens, dtype=dtype).unsqueeze(1)

    def computed(sizes: list[int]) -> Tensor:
        kv = PagedKv(pages, 1, block, heads, kv_heads, size, dtype, CPU, kernels)
        found, at = [], 0
        for count in sizes:
            step = kv.plan([[Query(range(pages), at, at + count, at)]])
            kind = Heads(0, rotation(step, size, dtype), None, None, 1e-6, scores)
            found.append(kernels.attend(kv, step, kind, lines[at : at + count].clone()))
            at += count
        return torch.cat(found)

    expected = computed([1] * tokens)
    for threads in (1, 2):
        with torch_threads(threads):
            for sizes in ([tokens], [1, 199], [63, 2, 135], [64, 1, 64, 71]):
                assert torch.equal(computed(sizes), expected)


def test_a_block_of_tokens_that_fill_no_vector_is_refused(native_library: Path) -> None:
    with pytest.raises(RuntimeError, match="multiple of 16"):
        attended(NativeKernels(native_library), (4, 2, 24, 24), torch.float32, normed=False)


@DTYPES
@pytest.mark.parametrize("size", [7, 64, 200])
def test_norms_and_gates_are_those_of_the_plain_kernels(
    native_library: Path, dtype: torch.dtype, size: int
) -> None:
    native, plain = NativeKernels(native_library), PlainKernels()
    for tokens in (0, 1, 5, 600):
        hidden = random(tokens, size, dtype=dtype, seed=1)
        delta, weight = random(tokens, size, dtype=dtype, seed=2), random(size, dtype=dtype, seed=3)
        for added in (None, delta):
            ours, theirs = hidden.clone(), hidden.clone()
            assert_near(
                native.add_norm(ours, added, weight, 1e-5),
                plain.add_norm(theirs, added, weight, 1e-5),
            )
            assert torch.equal(ours, theirs)
        both = 10 * random(tokens, 2 * size, dtype=dtype, seed=4)
        for activation in get_args(Activation):
            assert_near(native.gate(both, activation), plain.gate(both, activation))


def test_gates_of_any_size_stay_numbers(native_library: Path) -> None:
    gates = torch.tensor([-1e30, -200.0, -88.0, -1e-20, 0.0, 1e-20, 88.0, 200.0, 1e30]).repeat(1, 3)
    both = torch.cat((gates, torch.ones_like(gates)), dim=1)
    for activation in get_args(Activation):
        found = NativeKernels(native_library).gate(both, activation)
        assert_near(found, PlainKernels().gate(both, activation))


@pytest.mark.parametrize("vocab", [512, 4099, 31, 64])
def test_masks_leave_out_what_the_plain_ones_leave_out(native_library: Path, vocab: int) -> None:
    logits = random(6, vocab, dtype=torch.float32, seed=vocab)
    words = np.random.default_rng(vocab).integers(0, 2**32, (3, -(-vocab // 32)), np.uint32)
    words[1] = 0xFFFFFFFF
    words[2, :1] = 0
    rows = [4, 0, 3]
    found, expected = logits.clone(), logits.clone()
    NativeKernels(native_library).mask_logits(found, rows, words)
    PlainKernels().mask_logits(expected, rows, words)
    assert torch.equal(found, expected)
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=vocab, bitorder="little")
    for row, kept in zip(rows, bits, strict=True):
        assert torch.equal(expected[row].isfinite(), torch.from_numpy(kept == 1))
        assert torch.equal(expected[row][kept == 1], logits[row][kept == 1])
    assert torch.equal(expected[[1, 2, 5]], logits[[1, 2, 5]])


@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_map_is_the_plain_one(biased: bool) -> None:
    weight = random(48, 40, dtype=torch.bfloat16, seed=1)
    if not packs(weight):
        pytest.skip("oneDNN has no bfloat16 on this CPU")
    bias = random(48, dtype=torch.bfloat16, seed=2) if biased else None
    by = make_linear(weight, bias)
    assert by.packed
    for tokens in (1, 2, 33, 600):
        x = random(tokens, 40, dtype=torch.bfloat16, seed=tokens)
        assert_near(by(x), torch.nn.functional.linear(x, weight, bias))
    assert not make_linear(weight.float(), None).packed


def test_shapes_that_do_not_go_together_are_refused(native_library: Path) -> None:
    native = NativeKernels(native_library)
    with pytest.raises(RuntimeError, match="add_norm"):
        native.add_norm(torch.zeros(2, 8), None, torch.zeros(9), 1e-5)
    assert not NativeKernels.can_run(heads=4, kv_heads=2, head_size=12)
    assert not NativeKernels.can_run(heads=64, kv_heads=1, head_size=64)


def test_without_a_library_the_plain_kernels_serve(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path))
    assert native_build.built() is None
    settings = EngineSettings(model=checkpoints["llama"], kv_bytes=2**20)
    assert settings.native == "auto"
    engine = create_engine(settings)
    engine.close_engine()
    assert engine.info.operators is not None
    assert "not compiled" in engine.info.operators.reason
    assert not list(tmp_path.iterdir()), "nothing is built unless asked for"


def test_a_library_that_this_system_cannot_load_leaves_plain_torch(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path))
    monkeypatch.setenv("CXX", make_compiler(tmp_path))
    built = native_build.build()
    settings = EngineSettings(model=checkpoints["llama"], kv_bytes=2**20)
    engine = create_engine(settings)
    engine.close_engine()
    assert engine.info.operators is not None
    assert engine.info.operators.variant == ""
    assert f"{built.path} cannot be loaded" in engine.info.operators.reason
    with pytest.raises(StartupError, match="cannot be loaded"):
        create_engine(settings.model_copy(update={"native": "required"}))


def test_required_without_a_compiler_is_a_sentence(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    settings = EngineSettings(model=checkpoints["llama"], native="required")
    with pytest.raises(StartupError, match=r"C\+\+ compiler"):
        create_engine(settings)


def test_a_library_of_another_source_or_variant_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {native_build.library(variant).path for variant in VARIANTS}
    (tmp_path / "ops.cpp").write_text("// changed")
    monkeypatch.setattr(native_build, "SOURCE", tmp_path)
    changed = {native_build.library(variant).path for variant in VARIANTS}
    assert len(own | changed) == 2 * len(VARIANTS)


X86 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave", "sse4_2"}
AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("machine", "features", "best"),
    [
        ("x86_64", X86 | AVX512 | {"avx512_bf16", "amx_tile", "amx_bf16"}, "x86-64-v4-amx"),
        ("x86_64", X86 | AVX512 | {"avx512_bf16", "amx_bf16"}, "x86-64-v4-bf16"),
        ("x86_64", X86 | AVX512, "x86-64-v4"),
        ("x86_64", X86 | AVX512 - {"avx512vl"}, "x86-64-v3"),
        ("x86_64", X86 | {"avx512_bf16"}, "x86-64-v3"),
        ("x86_64", X86 - {"avx2"}, None),
        ("aarch64", {"asimd"}, "armv8"),
        ("riscv64", set(), None),
    ],
)
def test_each_cpu_takes_the_best_library_that_it_runs(
    machine: str,
    features: set[str],
    best: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "native"
    monkeypatch.setenv(DIRECTORY_ENV, str(directory))
    monkeypatch.delenv(VARIANT_ENV, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(variants, "cpu_features", lambda: frozenset(features))
    monkeypatch.setattr(native_build, "refusal", lambda path: "")
    monkeypatch.setenv("CXX", make_compiler(tmp_path))
    assert native_build.built() is None
    for variant in VARIANTS:
        native_build.library(variant).build()
    monkeypatch.setenv("CXX", "false")
    found = native_build.built()
    assert (found and found.variant.name) == best
    if best is None:
        with pytest.raises(RuntimeError, match="this CPU is not supported"):
            native_build.build()
        return
    for lock in directory.glob("*.lock"):
        lock.unlink()
    directory.chmod(0o500)  # as in an image: what is there is taken, and nothing written
    assert native_build.build() == found
    assert not list(directory.glob("*.lock"))


def test_a_variant_that_is_named_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(variants, "cpu_features", lambda: frozenset(X86 | AVX512))
    monkeypatch.setenv(VARIANT_ENV, "x86-64-v3")
    assert [each.name for each in variants.runnable()] == ["x86-64-v3"]
    for name in ("x86-64-v4-bf16", "x86-64-v5"):  # this CPU runs no such, or there is none
        monkeypatch.setenv(VARIANT_ENV, name)
        with pytest.raises(RuntimeError, match=f"BATON_NATIVE_VARIANT is {name}"):
            native_build.build()
