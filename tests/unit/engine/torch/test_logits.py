"""Logits equal those of transformers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from baton.engine.checkpoint.model_config import read_config
from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.checkpoint import read_weights
from baton.engine.torch.kernels import Kernels, PlainKernels
from baton.engine.torch.model import last_hidden, make_model
from baton.engine.torch.pages import PagedKv, Query

LENGTHS = (1, 15, 16, 17, 33, 500, 3000)
CPU = torch.device("cpu")
pytestmark = pytest.mark.xdist_group("transformers")


def ids(length: int) -> list[int]:
    return torch.randint(0, 512, (length,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture(params=["plain", "native"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "plain":
        return PlainKernels()
    return NativeKernels(request.getfixturevalue("native_library"))


def logits(
    path: Path, tokens: list[int], dtype: torch.dtype, chunk: int, kernels: Kernels | None = None
) -> Tensor:
    """Logits after every token, computed in chunks over pages in no particular order."""
    config = read_config(path)
    model = make_model(config, read_weights(path, config, dtype, CPU))
    pages = torch.randperm(200, generator=torch.Generator().manual_seed(2)).tolist()
    kv = PagedKv(
        200, config.layers, 16, config.heads, config.kv_heads, config.head_size, dtype, CPU, kernels
    )
    parts = []
    with torch.inference_mode():
        for start in range(0, len(tokens), chunk):
            end = min(len(tokens), start + chunk)
            step = kv.plan([[Query(pages, start, end, num_computed_tokens=start)]])
            part = torch.tensor(tokens[start:end])
            hidden = last_hidden(model, kv, part, step, torch.arange(end - start))
            parts.append(model.weights.head(hidden))
    return torch.cat(parts)


def reference(path: Path, tokens: list[int], dtype: torch.dtype) -> Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    with torch.inference_mode():
        found: Tensor = model(torch.tensor([tokens])).logits[0]
    return found


@pytest.mark.parametrize("family", ["llama", "llama-tied", "qwen2", "qwen3"])
def test_logits_equal_those_of_transformers(
    checkpoints: dict[str, Path], kernels: Kernels, family: str
) -> None:
    path = checkpoints[family]
    for length in LENGTHS:
        expected = reference(path, ids(length), torch.float32)
        found = logits(path, ids(length), torch.float32, 512, kernels)
        assert found.shape == expected.shape
        assert (found - expected).abs().max().item() < 1e-4
        assert expected.std().item() > 0.5, "logits this flat would hide mistakes"


def test_in_bfloat16_logits_are_as_good_as_those_of_transformers(
    checkpoints: dict[str, Path], kernels: Kernels
) -> None:
    for family in ("llama", "qwen2", "qwen3"):
        exact = reference(checkpoints[family], ids(500), torch.float32)
        theirs = reference(checkpoints[family], ids(500), torch.bfloat16)
        ours = logits(checkpoints[family], ids(500), torch.bfloat16, 128, kernels)
        assert (ours - exact).pow(2).mean() < 1.5 * (theirs - exact).pow(2).mean()


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ],
    ids=["linear", "llama3"],
)
def test_stretched_positions_equal_those_of_transformers(
    edited_checkpoint: Callable[..., Path], scaling: dict[str, object]
) -> None:
    path = edited_checkpoint(rope_parameters=scaling)
    expected = reference(path, ids(900), torch.float32)
    found = logits(path, ids(900), torch.float32, chunk=512)
    assert (found - expected).abs().max().item() < 1e-4


def test_a_checkpoint_that_transformers_saved_gives_the_same(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    for family in ("llama", "llama-tied", "qwen2", "qwen3"):
        model = AutoModelForCausalLM.from_pretrained(checkpoints[family])
        model.save_pretrained(tmp_path / family, max_shard_size="100KB")
        assert list((tmp_path / family).glob("*.index.json"))
        found = logits(tmp_path / family, ids(40), torch.float32, chunk=40)
        expected = logits(checkpoints[family], ids(40), torch.float32, chunk=40)
        assert torch.equal(found, expected)
