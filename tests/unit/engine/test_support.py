"""What each engine serves is known from config.json alone, and said in a sentence.

tests/data/model_configs.json has the fields of published config.json files, by model, that say
what the model is.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from baton.engine.checkpoint.model_options import FAMILIES
from baton.engine.support.architectures import ARCHITECTURES, TORCH_FAMILIES
from baton.engine.support.check import EngineKind, check_architecture
from baton.engine.support.documents import CONFIG, CheckpointError, read_document
from baton.engine.support.kv_facts import KvFacts, layer_windows
from baton.engine.support.preflight import check_engine
from baton.settings import EngineSettings, StartupError

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "model_configs.json").read_text()
)

MISTRAL = "mistral-7b-v0.1"
NEITHER = {
    "gemma-3-4b": "inputs besides text",
    "llama-4-scout": "inputs besides text",
    "deepseek-v2-lite": "latent attention",
    "deepseek-v3": "latent attention",
    "mamba2-2.7b": "state-space or linear attention layers",
    "falcon-h1-1.5b": "state-space or linear attention layers",
    "granite-4.0-h-tiny": "state-space or linear attention layers",
    "t5-small": "an encoder next to the decoder",
    "whisper-small": "an encoder next to the decoder",
    "qwen2-vl-2b": "inputs besides text",
    "phi-3-small": "block-sparse attention",
    "bert-base": "no output of text",
    "unknown-vision": "inputs besides text",
    "unknown-latent": "latent attention",
    "unknown-linear": "state-space or linear attention layers",
}
"""What a model needs that no engine has."""
VLLM_ALONE = (
    "glm-4.5-air",
    "phi-3.5-moe",
    "llama-4-text",
    "olmo-3-7b",
    "command-r7b",
    "qwen3-next-80b",
)
BOTH = (
    "llama-3.1-8b",
    "mistral-7b-v0.3",
    "qwen2.5-0.5b",
    "qwen3-0.6b",
    "glm-4-9b",
    "phi-3-mini-128k",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
    "phi-3-mini-4k",
    "gemma-2b",
    "gemma-2-2b",
    "gemma-3-1b",
    "gpt-oss-20b",
    "mistral-7b-v0.1",
)
UNKNOWN = ("unknown", "unknown-window")


def written(directory: Path, name: str, **fields: object) -> Path:
    """Write a config.json, with fields replaced."""
    (directory / "config.json").write_text(json.dumps(CONFIGS[name] | fields))
    return directory


def refusal(model: Path, kind: EngineKind, context_tokens: int = 0) -> str:
    with pytest.raises(CheckpointError) as caught:
        check_architecture(model, kind, context_tokens)
    return str(caught.value)


def architecture_of(name: str) -> str:
    return str(CONFIGS[name]["architectures"][0])


def test_every_config_is_looked_at() -> None:
    assert {*NEITHER, *VLLM_ALONE, *BOTH, *UNKNOWN} == set(CONFIGS)


@pytest.mark.parametrize("kind", ["torch", "vllm"])
@pytest.mark.parametrize("name", NEITHER)
def test_what_no_engine_serves_is_not_supported_yet(
    tmp_path: Path, name: str, kind: EngineKind
) -> None:
    said = refusal(written(tmp_path, name), kind)
    assert NEITHER[name] in said
    assert "not supported yet" in said
    assert str(tmp_path / "config.json") in said
    assert "--engine vllm" not in said


@pytest.mark.parametrize("name", VLLM_ALONE)
def test_what_vllm_alone_serves_is_sent_to_it(tmp_path: Path, name: str) -> None:
    model = written(tmp_path, name)
    check_architecture(model, "vllm", 0)
    said = refusal(model, "torch")
    assert architecture_of(name) in said
    assert "serve it with --engine vllm" in said


@pytest.mark.parametrize("kind", ["torch", "vllm", "sim"])
@pytest.mark.parametrize("name", BOTH)
def test_what_both_serve_is_served(tmp_path: Path, name: str, kind: EngineKind) -> None:
    check_architecture(written(tmp_path, name), kind, 0)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_in_no_table_is_left_to_vllm(tmp_path: Path, name: str) -> None:
    model = written(tmp_path, name)
    check_architecture(model, "vllm", 0)
    said = refusal(model, "torch")
    assert f"{architecture_of(name)}, which is not supported yet" in said
    assert "LlamaForCausalLM" in said


QWEN = "qwen2.5-0.5b"
USED = {"use_sliding_window": True, "sliding_window": 4096}


@pytest.mark.parametrize(
    ("name", "fields", "context", "windows"),
    [
        (MISTRAL, {}, 4096, {}),
        (MISTRAL, {}, 4097, {4096: 32}),
        (MISTRAL, {"sliding_window": 32768}, 0, {}),
        (MISTRAL, {"sliding_window": 32767}, 0, {32767: 32}),
        (MISTRAL, {"layer_types": ["full_attention"] * 32}, 0, {}),
        (MISTRAL, {"layer_types": ["sliding_attention", "full_attention"]}, 0, {4096: 1, 0: 1}),
        (QWEN, {"use_sliding_window": True}, 0, {}),  # as wide as the context
        (QWEN, USED, 0, {0: 21, 4096: 3}),
        (QWEN, {"use_sliding_window": None, "sliding_window": 4096}, 0, {}),
        (QWEN, USED | {"max_window_layers": 24}, 0, {}),
        (QWEN, USED | {"max_window_layers": 23}, 0, {0: 23, 4096: 1}),
        ("gemma-2-2b", {}, 0, {4096: 13, 0: 13}),
        ("gemma-3-1b", {}, 0, {512: 22, 0: 4}),
        ("gemma-3-1b", {"sliding_window_pattern": 2}, 0, {512: 13, 0: 13}),
        ("gpt-oss-20b", {}, 0, {128: 12, 0: 12}),
    ],
)
def test_a_window_as_wide_as_the_context_is_full_attention(
    tmp_path: Path, name: str, fields: dict[str, object], context: int, windows: dict[int, int]
) -> None:
    facts = read_document(written(tmp_path, name, **fields) / CONFIG, KvFacts)
    found = layer_windows(facts, CONFIGS[name]["num_hidden_layers"], context)
    assert Counter(found) == windows
    for kind in get_args(EngineKind):
        check_architecture(tmp_path, kind, context)


@pytest.mark.parametrize("kind", ["torch", "vllm"])
@pytest.mark.parametrize("width", [0, -1])
def test_a_window_of_no_tokens_is_refused(tmp_path: Path, width: int, kind: EngineKind) -> None:
    said = refusal(written(tmp_path, MISTRAL, sliding_window=width), kind)
    assert f"has sliding_window {width}, with which layers see no tokens: set it to" in said


def test_a_mistral_that_says_nothing_of_its_window_has_one(tmp_path: Path) -> None:
    config = {key: value for key, value in CONFIGS[MISTRAL].items() if key != "sliding_window"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = read_document(tmp_path / CONFIG, KvFacts)
    assert layer_windows(facts, 32, 0) == (4096,) * 32


def test_what_the_torch_engine_lacks_beside_the_architecture_is_found_before_it_is_made(
    tmp_path: Path,
) -> None:
    model = written(tmp_path, "llama-3.1-8b", rope_scaling={"rope_type": "dynamic", "factor": 4.0})
    with pytest.raises(StartupError, match=r"rope scaling dynamic.*--engine vllm"):
        check_engine(EngineSettings(model=model))


def test_the_table_knows_each_family_of_the_torch_engine() -> None:
    assert set(TORCH_FAMILIES.values()) == set(FAMILIES)
    assert not any(ARCHITECTURES[name].needs for name in TORCH_FAMILIES)


CHECK_ALL = """
import sys, time
from pathlib import Path
from baton.engine.support.check import check_architecture
from baton.engine.support.documents import CONFIG, CheckpointError, read_document
from baton.engine.support.kv_facts import KvFacts, layer_windows
for directory in sys.argv[1:]:
    began = time.process_time()
    try:
        check_architecture(Path(directory), "torch", 0)
    except CheckpointError:
        pass
    print(time.process_time() - began)
print(*sorted({"torch", "vllm", "transformers", "numpy"} & set(sys.modules)))
"""


def test_neither_torch_nor_vllm_is_imported_to_know_it(tmp_path: Path) -> None:
    models = []
    for name in CONFIGS:
        (tmp_path / name).mkdir()
        models.append(str(written(tmp_path / name, name)))
    done = subprocess.run(
        [sys.executable, "-c", CHECK_ALL, *models], capture_output=True, text=True, check=True
    )
    *seconds, imported = done.stdout.split("\n")[:-1]
    assert imported == ""
    assert len(seconds) == len(CONFIGS)
    assert max(map(float, seconds)) < 1.0
