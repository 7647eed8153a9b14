"""LoRA adapters: what is read of them, and what is refused by a sentence."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from baton.engine.factory import create_engine
from baton.engine.lora.adapter import Adapter, read_adapters
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.settings import EngineSettings, StartupError

Q = "base_model.model.model.layers.0.self_attn.q_proj"
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lora") / "model"
    return write_random_checkpoint(directory, vocab=300, shards=2)


def read(directory: Path, model: Path, max_rank: int = 16) -> Adapter:
    (found,) = read_adapters({"sql": directory}, model, max_rank)
    return found


def test_what_an_adapter_is(tmp_path: Path, model: Path) -> None:
    made = write_random_adapter(tmp_path / "a", model, modules=("up_proj", "o_proj"), rank=4)
    found = read(made, model)
    assert (found.name, found.directory) == ("sql", made)
    assert (found.rank, found.modules) == (4, ("o_proj", "up_proj"))
    assert len(found.digest) == 16
    assert read_adapters({}, Path("nowhere"), 16) == ()


def test_the_digest_names_what_it_computes(tmp_path: Path, model: Path) -> None:
    def digest(name: str, seed: int = 0, **options: Any) -> bytes:
        return read(write_random_adapter(tmp_path / name, model, seed, **options), model).digest

    first = digest("a")
    assert digest("b") == first
    assert digest("c", inference_mode=True, lora_dropout=0.1, rank_pattern=None) == first
    others = [
        digest("d", seed=1),
        digest("e", alpha=8.0),
        digest("f", use_rslora=True),
        digest("g", alpha_pattern={"q_proj": 3}),
    ]
    assert len({first, *others}) == 5


def test_ranks_may_differ_by_module(tmp_path: Path, model: Path) -> None:
    made = write_random_adapter(tmp_path / "a", model, rank=4)
    tensors = load_file(made / "adapter_model.safetensors")
    for name, tensor in tensors.items():
        if "0.self_attn.q_proj" in name:
            widened = (12, tensor.shape[1]) if "lora_A" in name else (tensor.shape[0], 12)
            tensors[name] = torch.zeros(widened)
    save_file(tensors, made / "adapter_model.safetensors")
    config = json.loads((made / "adapter_config.json").read_text())
    config["rank_pattern"] = {r"layers\.0\.self_attn\.q_proj": 12}
    (made / "adapter_config.json").write_text(json.dumps(config))
    assert read(made, model).rank == 12
    with pytest.raises(StartupError, match="rank is 12"):
        read(made, model, max_rank=8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 17}, ["rank is 17", "is 16", "BATON_ENGINE_MAX_ADAPTER_RANK to 17"]),
        ({"r": 0}, ["rank 0", "at least 1"]),
        ({"r": "many"}, ["damaged", "int"]),
        ({"lora_alpha": None}, ["damaged", "lora_alpha"]),
        ({"peft_type": "LOHA"}, ["peft_type 'LOHA'", "LORA"]),
        ({"use_dora": True}, ["use_dora", "without it"]),
        ({"bias": "all"}, ["bias = all"]),
        ({"lora_bias": True}, ["lora_bias"]),
        ({"kasa_config": {"beta": 0.1}}, ["kasa_config"]),
        ({"modules_to_save": ["lm_head"]}, ["modules_to_save", "lm_head"]),
        ({"target_parameters": ["experts.down"]}, ["target_parameters"]),
        ({"alora_invocation_tokens": [1]}, ["alora_invocation_tokens"]),
        ({"layer_replication": [[0, 1]]}, ["layer_replication"]),
        ({"init_lora_weights": "pissa"}, ["init_lora_weights", "pissa", "convert"]),
        ({"rank_pattern": {"(": 2}}, ["pattern '('"]),
        ({"rank_pattern": {"q_proj": 2}}, ["lora_A", "with rank 2", "[2, 64]"]),
    ],
)
def test_options_that_are_refused(
    tmp_path: Path, model: Path, options: dict[str, Any], words: list[str]
) -> None:
    made = write_random_adapter(tmp_path / "a", model, **options)
    refused(made, model, words)


def without(*endings: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {k: v for k, v in tensors.items() if not k.endswith(endings)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("lora_B.weight"), ["only lora_A", "both"]),
        (without("weight"), ["no matrices"]),
        (lambda t: t | {f"{Q}.lora_A.weight": torch.zeros(8, 32)}, ["lora_A", "[8, 32]", "64"]),
        (lambda t: t | {f"{Q}.lora_B.weight": torch.zeros(8, 8)}, ["lora_B", "[64, 8]"]),
        (lambda t: t | {f"{Q}.lora_A.weight": torch.zeros(8, 64, dtype=torch.int8)}, ["I8"]),
        (lambda t: t | {f"{Q}.lora_A.weight": torch.zeros(8)}, ["F32[8]"]),
        (lambda t: t | {f"{Q}.bias": torch.zeros(8)}, ["q_proj.bias", "linear"]),
        (lambda t: t | {"base_model.model.lora_embedding_A": torch.zeros(1)}, ["embeddings"]),
        (
            lambda t: {k.replace("q_proj", "c_attn"): v for k, v in t.items()},
            ["2 modules", "model.layers.0.self_attn.c_attn", "another model"],
        ),
    ],
)
def test_matrices_that_do_not_fit(
    tmp_path: Path, model: Path, change: Callable[[Tensors], Tensors], words: list[str]
) -> None:
    made = write_random_adapter(tmp_path / "a", model)
    path = made / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)
    refused(made, model, words)


def test_files_that_are_missing_or_damaged(tmp_path: Path, model: Path) -> None:
    refused(tmp_path / "nowhere", model, ["adapter_config.json", "cannot be read", "PEFT"])
    made = write_random_adapter(tmp_path / "a", model)
    weights, config = made / "adapter_model.safetensors", made / "adapter_config.json"
    weights.write_bytes(weights.read_bytes()[:-1])
    refused(made, model, ["adapter_model.safetensors is damaged"])
    weights.unlink()
    refused(made, model, ["adapter_model.safetensors is missing"])
    (made / "adapter_model.bin").write_bytes(b"cos\nsystem\n")
    refused(
        made,
        model,
        [
            "adapter_model.bin is pickle",
            "is pickle, which is not supported",
            "safe_serialization",
        ],
    )
    for text in ("{", "[1]", "[" * 100_000):
        config.write_text(text)
        refused(made, model, ["adapter_config.json is damaged"])


def refused(directory: Path, model: Path, words: list[str]) -> None:
    with pytest.raises(StartupError) as caught:
        read(directory, model)
    for word in ["'sql'", "BATON_ENGINE_ADAPTERS", *words]:
        assert word in str(caught.value)
    assert str(caught.value).count(".") and not str(caught.value).endswith("..")


@pytest.mark.parametrize("kind", ["sim", "torch"])
def test_engines_without_adapters_refuse_them_at_start(model: Path, kind: Any) -> None:
    settings = EngineSettings(kind=kind, model=model, adapters={"sql": Path("nowhere")})
    with pytest.raises(StartupError, match=rf"{kind} does not support adapters.*_ADAPTERS"):
        create_engine(settings)


def test_reading_one_needs_no_torch() -> None:
    code = "import sys, baton.engine.lora.adapter; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
