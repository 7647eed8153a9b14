"""requirements-vllm.txt is all that an engine inside a worker needs of vLLM."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from scripts.check_vllm import LEFT_OUT
from tests.integration.packaging.vllm_features import REGEX

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "models" / "baton-tiny"
RANK = 8


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA adapter of the demo's model, large enough to change its output."""
    config = json.loads((MODEL / "config.json").read_text())
    hidden = config["hidden_size"]
    tensors = {}
    generator = torch.Generator().manual_seed(0)
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, hidden, generator=generator)
        tensors[f"{name}.lora_B.weight"] = torch.randn(hidden, RANK, generator=generator)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.vllm
@pytest.mark.timeout(240)
def test_adapters_grammars_and_speculation_work_with_what_is_installed(adapter: Path) -> None:
    command = [sys.executable, "-m", "tests.integration.packaging.vllm_features", MODEL, adapter]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (plain, adapted, xgrammar), (speculated, guidance) = map(json.loads, ran.stdout.splitlines())
    assert plain == speculated
    assert adapted != plain
    assert re.fullmatch(REGEX, xgrammar)
    assert re.fullmatch(REGEX, guidance)


def test_packages_that_are_left_out_are_named() -> None:
    listed = (ROOT / "requirements-vllm.txt").read_text()
    assert not [name for name in LEFT_OUT if re.search(rf"^{name}\b", listed, re.MULTILINE)]
