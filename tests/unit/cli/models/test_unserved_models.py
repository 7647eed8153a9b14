"""Models that no engine serves end a start with exit code 2 and one sentence, before vLLM loads."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import slowness
from tests.support.models.checkpoint import safetensors
from tests.unit.cli.test_commands import Forked, call, forked

__all__ = ["forked"]

pytestmark = pytest.mark.vllm

QWEN3_NEXT = {"dtype": "float32", "layer_types": ["linear_attention", "full_attention"]}
UNSERVED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an encoder": ("BertModel", {}, "it has no output of text (an encoder)"),
    "a classifier": ("Qwen2ForSequenceClassification", {}, "it has no output of text (an encoder)"),
    "an encoder and a decoder": ("T5ForConditionalGeneration", {}, "it has an encoder next to"),
    "pictures": ("Qwen2VLForConditionalGeneration", {}, "it has inputs besides text"),
    "pictures by a field": ("NewForCausalLM", {"vision_config": {}}, "it has inputs besides text"),
    "gated delta nets, unproven": ("Qwen3_5ForCausalLM", QWEN3_NEXT, "it has state-space or"),
    "states by a field": ("NewForCausalLM", QWEN3_NEXT, "it has state-space or linear attention"),
    "latent attention": ("DeepseekV3ForCausalLM", {"kv_lora_rank": 384}, "it has latent attention"),
    "latent attention by a field": ("NewForCausalLM", {"kv_lora_rank": 8}, "it has latent attent"),
    "a window of nothing": ("MistralForCausalLM", {"sliding_window": 0}, "has sliding_window 0, "),
    "chunks of nothing": (
        "Llama4ForCausalLM",
        {"attention_chunk_size": 0},
        "attention_chunk_size ",
    ),
    "layers of no known kind": ("NewForCausalLM", {"layer_types": ["echo"]}, "another kind (echo)"),
    "no architecture": ("", {}, "names no architecture: set `architectures`"),
    "a field of another type": ("LlamaForCausalLM", {"sliding_window": "4k"}, "is damaged: Expect"),
}
COMMANDS = ["up --engine vllm --model", "serve decode --engine-kind vllm --engine-model"]


def write_model(directory: Path, architecture: str, fields: dict[str, Any]) -> None:
    (directory / "tokenizer.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(safetensors({}))
    config = {"architectures": [architecture] if architecture else [], **fields}
    (directory / "config.json").write_text(json.dumps({"max_position_embeddings": 4096} | config))


@pytest.mark.parametrize("what", UNSERVED)
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_model_that_vllm_is_not_given_is_refused_in_a_sentence(
    forked: Forked, tmp_path: Path, command: str, what: str
) -> None:
    architecture, fields, said = UNSERVED[what]
    write_model(tmp_path, architecture, fields)
    done = await forked(*command.split(), str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path}/config.json " in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_vllm_is_not_loaded_to_refuse_a_model(tmp_path: Path, command: str) -> None:
    write_model(tmp_path, "DeepseekV3ForCausalLM", {})
    begun = sum(os.times()[2:4])
    done = call(*command.split(), str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 2
    # vLLM alone takes 4 s to import.
    assert sum(os.times()[2:4]) - begun < 3 * slowness()
