"""In bfloat16 a token's KV and logits are the same bits, whatever is computed in the same step."""

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from baton.engine.checkpoint.model_config import read_config
from baton.engine.factory import create_engine
from baton.engine.native.kernels import NativeKernels
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.engine.torch.checkpoint import read_weights
from baton.engine.torch.kv.groups import ModelKv
from baton.engine.torch.kv.pages import PagedKv, Query
from baton.engine.torch.model import TransformerModel, last_hidden, make_model
from baton.settings import EngineSettings, StartupError
from tests.support.examples import examples

CPU = torch.device("cpu")
TOKENS = 136
BLOCK = 16
PAGES = 9
"""Of a sequence."""
Chunk = tuple[int, int, int]
"""Sequence, first position, end."""


@pytest.fixture(scope="module", params=["qwen2", "qwen3_moe", "mistral"])
def model(
    request: pytest.FixtureRequest, native_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> TransformerModel:
    """Wide enough for products of two parts and some panels, and for heads that fill no vector."""
    path = write_random_checkpoint(
        tmp_path_factory.mktemp("wide") / "model",
        "llama" if request.param == "mistral" else request.param,
        hidden=136,
        mlp=1600 if request.param == "qwen2" else 200,
        heads=6,
        kv_heads=2,
        head_size=40,
        dtype="bfloat16",
    )
    if request.param == "mistral":
        fields = json.loads((path / "config.json").read_text())
        fields |= {"architectures": ["MistralForCausalLM"], "sliding_window": 50}
        (path / "config.json").write_text(json.dumps(fields))
    kernels = NativeKernels(native_library, deterministic=True)
    config = read_config(path)
    return make_model(config, read_weights(path, config, torch.bfloat16, CPU, kernels.make_linear))


def tokens_of(sequence: int) -> list[int]:
    return [(31 * i + 57 * sequence * i + 11 * sequence) % 500 for i in range(TOKENS)]


def compute(
    model: TransformerModel, library: Path, sequences: int, steps: Sequence[Sequence[Chunk]]
) -> tuple[Tensor, Tensor]:
    """Return the logits [sequences, positions, vocab] and the KV of sequences computed in steps."""
    config = model.config
    kv = PagedKv(
        sequences * PAGES,
        config.layers,
        BLOCK,
        config.heads,
        config.kv_heads,
        config.head_size,
        torch.bfloat16,
        CPU,
        NativeKernels(library, deterministic=True),
    )
    logits = torch.zeros(sequences, TOKENS, config.vocab_tokens, dtype=torch.bfloat16)
    for step in steps:
        queries = [
            Query(range(s * PAGES, (s + 1) * PAGES), start, end, start) for s, start, end in step
        ]
        tokens = [t for s, start, end in step for t in tokens_of(s)[start:end]]
        rows = torch.arange(len(tokens))
        with torch.inference_mode():
            plan = kv.plan([[q] for q in queries])
            hidden = last_hidden(model, ModelKv([kv]), torch.tensor(tokens), [plan], rows)
            found = model.weights.head(hidden)
        parts = found.split([end - start for _, start, end in step])
        for (s, start, end), part in zip(step, parts, strict=True):
            logits[s, start:end] = part
    return logits, kv.pool[:-1].clone()


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours.view(torch.int16), theirs.view(torch.int16))


@pytest.fixture(scope="module")
def whole(model: TransformerModel, native_library: Path) -> tuple[Tensor, Tensor]:
    """Two sequences, each in one piece and alone."""
    return compute(model, native_library, 2, [[(0, 0, TOKENS)], [(1, 0, TOKENS)]])


@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cuts=st.lists(st.lists(st.integers(1, 70), min_size=1, max_size=40), min_size=2, max_size=2),
    threads=st.sampled_from([1, 2]),
)
def test_however_sequences_are_cut_and_joined(
    model: TransformerModel,
    native_library: Path,
    whole: tuple[Tensor, Tensor],
    cuts: list[list[int]],
    threads: int,
) -> None:
    chunks: list[list[Chunk]] = []
    for number, sizes in enumerate(cuts):
        ends = [end for end in accumulate(sizes) if end < TOKENS]
        chunks.append([(number, *cut) for cut in pairwise([0, *ends, TOKENS])])
    count = max(map(len, chunks))
    steps = [[each[i] for each in chunks if i < len(each)] for i in range(count)]
    torch.set_num_threads(threads)
    try:
        found = compute(model, native_library, 2, steps)
    finally:
        torch.set_num_threads(1)
    assert_same(found, whole)


def test_one_token_at_a_time(
    model: TransformerModel, native_library: Path, whole: tuple[Tensor, Tensor]
) -> None:
    steps = [[(0, i, i + 1), (1, i, i + 1)] for i in range(TOKENS)]
    assert_same(compute(model, native_library, 2, steps), whole)


@pytest.mark.parametrize(("outputs", "inputs"), [(48, 40), (100, 7), (64, 128), (300, 1024)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_map_sees_one_row_at_a_time(
    native_library: Path, outputs: int, inputs: int, biased: bool
) -> None:
    draw = torch.Generator().manual_seed(inputs)
    weight = torch.randn(outputs, inputs, generator=draw).bfloat16()
    bias = torch.randn(outputs, generator=draw).bfloat16() if biased else None
    x = torch.randn(230, inputs, generator=draw).bfloat16()
    by = NativeKernels(native_library, deterministic=True).make_linear(weight, bias)
    found = by(x)
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert ((found.double() - expected).abs() <= 1e-2 * (1 + expected.abs())).all()
    for rows in (1, 2, 3, 5, 6, 7, 13, 32, 97):
        assert torch.equal(by(x[:rows]), found[:rows])
        assert torch.equal(by(x[-rows:]), found[-rows:])
    assert by(x[:0]).shape == (0, outputs)


def test_kv_of_other_sums_is_of_another_layout(
    native_library: Path, checkpoints: dict[str, Path]
) -> None:
    def info(**fields: object) -> tuple[bytes, tuple[str, ...]]:
        given = {"model": checkpoints["llama"], "kv_bytes": 2**20, "dtype": "bfloat16", **fields}
        engine = create_engine(EngineSettings.model_validate(given))
        engine.close_engine()
        return engine.info.layout.layout_id, engine.info.features

    exact, features = info(native="required", deterministic="required")
    other, plain = info(native="required", deterministic="off")
    assert exact != other
    assert "deterministic" in features
    assert "deterministic" not in plain
    # The plain kernels' blocks have another order of values.
    reference, features = info(native="off", deterministic="off")
    assert reference not in (exact, other)
    assert features == plain
    for fields, why in (
        ({"native": "off"}, "no compiled operators"),
        ({"native": "required", "dtype": "float32"}, "dtype is float32"),
    ):
        with pytest.raises(StartupError, match=why):
            info(**{"deterministic": "required", **fields})
