"""Sizes of a checkpoint, and the arithmetic of plans."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from baton.engine.support.documents import CheckpointError
from baton.planning.errors import PlanError
from baton.planning.gpus import GPUS, find_gpu
from baton.planning.model import read_model
from baton.planning.plan import BANDWIDTH_SHARE, FLOPS_SHARE, Load, make_plan
from tests.support.models.sizes import LLAMA_8B, llama_tensors, write_sizes

Make = Callable[..., Path]
H100, L4 = GPUS["h100"], GPUS["l4"]
LLAMA_PARAMETERS = 8_030_261_248  # https://huggingface.co/meta-llama/Llama-3.1-8B: 8.03B


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a checkpoint."""
    return lambda config=LLAMA_8B, *given, **more: write_sizes(
        tmp_path / "model", config, *given, **more
    )


def test_the_sizes_of_a_checkpoint(make: Make) -> None:
    model = read_model(make())
    assert model.parameters == LLAMA_PARAMETERS
    assert model.weight_bytes == 2 * LLAMA_PARAMETERS
    assert model.kv_token_bytes == 2 * 32 * 8 * 128 * 2
    assert model.active_parameters == LLAMA_PARAMETERS
    assert model.read_bytes(1) == model.weight_bytes


def test_floats_are_converted_and_what_is_quantized_is_not(make: Make) -> None:
    assert read_model(make(dtype="F32")).weight_bytes == 2 * LLAMA_PARAMETERS
    assert read_model(make(), "float32").weight_bytes == 4 * LLAMA_PARAMETERS
    assert read_model(make(dtype="U8")).weight_bytes == LLAMA_PARAMETERS


def test_a_token_uses_some_of_the_experts(make: Make) -> None:
    config = {
        **LLAMA_8B, "architectures": ["MixtralForCausalLM"], "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    tensors = {"model.layers.0.mlp.experts.0.w1.weight": (8, 100), "model.norm.weight": (200,)}
    model = read_model(make(config, tensors))
    assert (model.parameters, model.active_parameters) == (1000, 200 + 800 / 4)
    assert model.read_bytes(1) == 2 * 400
    assert model.read_bytes(1000) == pytest.approx(2 * 1000)


def test_the_fewest_gpus_that_fit(make: Make) -> None:
    model = read_model(make())
    assert make_plan(model, H100).ranks == 1
    assert make_plan(model, L4).ranks == 2, "weights fit on one, a sequence beside them does not"
    assert make_plan(model, L4, load=Load(context_tokens=8192)).ranks == 1
    large = replace(model, weight_bytes=141 * 10**9)
    assert make_plan(large, H100).ranks == 4, "2 have room for a part of a sequence"


def test_kv_has_what_weights_and_steps_leave(make: Make) -> None:
    made = make_plan(read_model(make()), H100)
    assert made.kv_bytes == (made.kv_tokens + 16) * made.kv_token_bytes
    assert made.kv_tokens % 16 == 0
    used = made.rank_weight_bytes + made.rank_activation_bytes + made.kv_bytes
    free = H100.memory_bytes * 0.92 - 2 * 2**30 - used
    assert 0 <= free < 16 * made.kv_token_bytes


def test_kv_heads_that_are_too_few_are_copied(make: Make) -> None:
    made = make_plan(read_model(make()), H100, ranks=16)
    assert made.kv_token_bytes == 2 * read_model(make()).kv_token_bytes


def test_what_to_expect_of_a_worker(make: Make) -> None:
    model = read_model(make())
    made = make_plan(model, H100)
    token = (model.weight_bytes + 2125 * model.kv_token_bytes) / (H100.bandwidth * BANDWIDTH_SHARE)
    assert made.one_tokens_per_second == pytest.approx(1 / token)
    attention = 4 * 32 * 4096 * 1000
    operations = 2 * LLAMA_PARAMETERS + attention
    assert made.prefill_tokens_per_second == pytest.approx(H100.flops * FLOPS_SHARE / operations)
    assert made.one_tokens_per_second < made.decode_tokens_per_second
    assert made.decode_tokens_per_second < made.batch * made.one_tokens_per_second
    twice = make_plan(model, H100, ranks=2)
    assert twice.one_tokens_per_second == pytest.approx(2 * made.one_tokens_per_second)


def test_workers_are_split_by_their_work(make: Make) -> None:
    model = read_model(make())
    assert (made := make_plan(model, H100)).prefill_workers == made.decode_workers == 2
    prompts = make_plan(model, H100, 16, load=Load(prompt_tokens=8000, output_tokens=10))
    outputs = make_plan(model, H100, 16, load=Load(prompt_tokens=100, output_tokens=1000))
    assert prompts.prefill_workers > outputs.prefill_workers == 2
    for each in (prompts, outputs):
        assert each.gpus == each.prefill_workers + each.decode_workers == 16
    assert make_plan(model, H100, 7, 2).gpus == 6


def test_a_gpu_of_its_owner(make: Make) -> None:
    mine = find_gpu("mine", 80 * 10**9, 3.35e12, 989e12)
    assert make_plan(read_model(make()), mine) == make_plan(read_model(make()), H100)
    assert find_gpu("H100", memory_bytes=40 * 10**9).bandwidth == H100.bandwidth


BAD = {
    "fits no number of l4": {"weight_bytes": 10**13},
    "exceeds the model's own, 131072: lower --context": {"context_tokens": 131073},
    "exceed the context of 2000: lower --prompt": {"context_tokens": 2000},
    "cannot be divided among 3 GPUs": {"ranks": 3},
    "room for 0 tokens, and one sequence may have 131072: raise": {
        "ranks": 1,
        "weight_bytes": 10**11,
    },
    "3 GPUs are one worker of 2 at most: a prefill and a decode worker need 4": {"gpus": 3},
}


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_be_planned(text: str, make: Make) -> None:
    given = BAD[text]
    model = read_model(make())
    model = replace(model, weight_bytes=given.get("weight_bytes", model.weight_bytes))
    load = Load(context_tokens=given.get("context_tokens", 0))
    with pytest.raises(PlanError, match=text):
        make_plan(model, L4, given.get("gpus", 0), given.get("ranks", 0), load)


def test_a_gpu_that_nobody_knows() -> None:
    with pytest.raises(PlanError, match=r"'tpu' is known. Known are a10, .* set --gpu-memory, "):
        find_gpu("tpu", memory_bytes=10**10)
    for value in (float("nan"), float("inf")):
        with pytest.raises(PlanError, match="--gpu-flops are finite numbers"):
            find_gpu("h100", flops=value)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("cut", r"is incomplete \(it has \d+ of \d+ bytes\)"),
        ("no weights", r"model\.safetensors is missing"),
        ("no config", r"config\.json is missing"),
        ("no layers", "does not say how many layers"),
        ("no directory", "is not a directory"),
        ("architecture", "which is not supported yet"),
    ],
)
def test_a_checkpoint_that_is_not_one(damage: str, text: str, make: Make) -> None:
    directory = make()
    weights = directory / "model.safetensors"
    match damage:
        case "cut":
            with weights.open("r+b") as file:
                file.truncate(weights.stat().st_size - 1)
        case "no weights":
            weights.unlink()
        case "no config":
            (directory / "config.json").unlink()
        case "no layers":
            make({**LLAMA_8B, "num_hidden_layers": 0}, llama_tensors(LLAMA_8B))
        case "no directory":
            directory = directory / "none"
        case "architecture":
            make({**LLAMA_8B, "architectures": ["MambaForCausalLM"]}, llama_tensors(LLAMA_8B))
    with pytest.raises(CheckpointError, match=text):
        read_model(directory)
