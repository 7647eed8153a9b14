"""LoRA adapters of random matrices in PEFT's layout, for tests."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from baton.engine.checkpoint.files import tensor_shapes, weight_files
from baton.engine.lora.config import CONFIG
from baton.engine.lora.weights import WEIGHTS


def write_random_adapter(
    path: Path,
    model: Path,
    seed: int = 0,
    *,
    rank: int = 8,
    alpha: float = 16.0,
    modules: Sequence[str] = ("q_proj", "v_proj"),
    scale: float = 0.1,
    **options: object,
) -> Path:
    """Write an adapter; takes a few milliseconds.

    Args:
        path: the directory, created if it does not exist.
        model: the checkpoint directory of the model that it fits.
        seed: other seeds yield other matrices.
        rank: of every matrix.
        alpha: the product of two matrices is scaled by alpha / rank.
        modules: last names of the linear layers that it changes, in every block.
        scale: standard deviation of the matrices' values; PEFT itself begins with B = 0.
        options: further fields of adapter_config.json.

    Returns:
        The path.
    """
    path.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.name,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": list(modules),
        "bias": "none",
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
        **options,
    }
    (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, tensor in tensor_shapes(weight_files(model)).items():
        layer, _, kind = name.rpartition(".")
        if kind != "weight" or layer.rpartition(".")[2] not in modules:
            continue
        outputs, inputs = tensor.shape
        for letter, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            values = torch.randn(shape, generator=generator) * scale
            tensors[f"base_model.model.{layer}.lora_{letter}.weight"] = values
    save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})
    return path
