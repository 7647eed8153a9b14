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
from baton.engine.torch.kv.groups import ModelKv, group_windows
from baton.engine.torch.kv.pages import PagedKv, Query
from baton.engine.torch.model import last_hidden, make_model
from baton.engine.torch.rope import make_rotary

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
    path: Path,
    tokens: list[int],
    dtype: torch.dtype,
    chunk: int,
    kernels: Kernels | None = None,
    context_tokens: int = 0,
) -> Tensor:
    """Logits after every token, computed in chunks over pages in no particular order."""
    config = read_config(path, context_tokens)
    model = make_model(config, read_weights(path, config, dtype, CPU))
    pages = torch.randperm(200, generator=torch.Generator().manual_seed(2)).tolist()
    windows = config.options.windows or (0,) * config.layers
    shape = (16, config.heads, config.kv_heads, config.head_size, dtype, CPU, kernels)
    pools = [PagedKv(200, windows.count(each), *shape, each) for each in group_windows(windows)]
    kv = ModelKv(pools, windows)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(tokens), chunk):
            end = min(len(tokens), start + chunk)
            query = Query(pages, start, end, num_computed_tokens=start)
            _, steps = kv.plan([[query] for _ in pools])
            part = torch.tensor(tokens[start:end])
            hidden = last_hidden(model, kv, part, steps, torch.arange(end - start))
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


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.02, 1.03, 1.05, 1.1, 1.2, 1.5, 2.0],
    "long_factor": [1.05, 1.2, 1.5, 2.5, 5.0, 12.0, 24.0, 40.0],
    "original_max_position_embeddings": 256,
}
SCALINGS: dict[str, dict[str, object]] = {
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "yarn": YARN | {"original_max_position_embeddings": 256},
    "yarn-whole-context": YARN,
    "yarn-gpt-oss": YARN
    | {
        "original_max_position_embeddings": 256,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "rope_theta": 150000.0,
    },
    "yarn-deepseek": YARN
    | {"original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 0.7},
    "longrope": LONG,
    "longrope-factors": LONG | {"factor": 32.0, "attention_factor": 1.3},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_stretched_positions_equal_those_of_transformers(
    edited_checkpoint: Callable[..., Path], scaling: str, dtype: torch.dtype
) -> None:
    path = edited_checkpoint(rope_parameters=SCALINGS[scaling])
    expected = reference(path, ids(900), dtype)
    found = logits(path, ids(900), dtype, chunk=512, context_tokens=4096)
    assert (found - expected).abs().max().item() < 1e-4


@pytest.mark.parametrize("scaling", SCALINGS)
def test_frequencies_have_the_bits_of_those_of_transformers(
    edited_checkpoint: Callable[..., Path], scaling: str
) -> None:
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    path = edited_checkpoint(rope_parameters=SCALINGS[scaling])
    theirs = AutoConfig.from_pretrained(path)
    compute = ROPE_INIT_FUNCTIONS[theirs.rope_parameters["rope_type"]]
    for context in (0, 4096):
        rotary = make_rotary(read_config(path, context).rope, 16, CPU)
        frequencies, factor = compute(theirs, CPU, seq_len=context)
        assert torch.equal(rotary.frequencies, frequencies)
        assert rotary.attention_factor == factor


def test_a_prompt_within_the_original_context_of_longrope_has_short_factors(
    edited_checkpoint: Callable[..., Path],
) -> None:
    path = edited_checkpoint(rope_parameters=LONG)
    expected = reference(path, ids(256), torch.float32)
    found = logits(path, ids(256), torch.float32, chunk=100)
    assert (found - expected).abs().max().item() < 1e-4
    stretched = logits(path, ids(256), torch.float32, chunk=100, context_tokens=257)
    assert (stretched - expected).abs().max().item() > 1e-2


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
