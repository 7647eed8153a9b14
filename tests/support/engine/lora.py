"""Models and adapters of them, and the models with an adapter merged into their weights."""

import json
import shutil
from pathlib import Path

from safetensors.torch import load, load_file, save_file

from baton.engine.base import Engine
from baton.engine.checkpoint.files import tensor_shapes, weight_files
from baton.engine.factory import create_engine
from baton.engine.lora.adapter import read_adapter, read_files
from baton.engine.lora.limits import checkpoint_limits
from baton.engine.lora.weights import MATRIX
from baton.settings import EngineSettings

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Last names of all linear layers of most models."""


def add(engine: Engine, key: str, directory: Path) -> None:
    """Load an adapter into an engine."""
    limits = engine.info.adapter_limits
    assert limits is not None
    engine.add_adapter(key, engine.load_adapter(read_adapter(key, directory, limits)))


def merge(model: Path, directory: Path, to: Path) -> Path:
    """Write a checkpoint of float64 whose weights have an adapter in them."""
    shutil.copytree(model, to)
    limits = checkpoint_limits(tensor_shapes(weight_files(model)), 64, 1)
    adapter = read_files(read_adapter("a", directory, limits))
    matrices = {}
    for name, matrix in load(bytes(adapter.weights)).items():
        match = MATRIX.fullmatch(name)
        assert match is not None
        matrices[match[1], match[2]] = matrix
    for path in to.glob("*.safetensors"):
        tensors = {name: tensor.double() for name, tensor in load_file(path).items()}
        for (module, letter), a in matrices.items():
            if letter == "A" and f"{module}.weight" in tensors:
                product = matrices[module, "B"].double() @ a.double()
                tensors[f"{module}.weight"] += adapter.config.scale_of(module) * product
        save_file(tensors, path)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | {"torch_dtype": "float64"}))
    return to


def make_engine(model: Path, kind: str = "torch", **settings: object) -> Engine:
    """Create an engine: torch, by default in float64, or vllm in float32."""
    fields: dict[str, object] = {"kind": kind, "threads": 1, "self_check": False}
    if kind == "vllm":
        fields |= {"dtype": "float32", "kv_bytes": 4 * 1024 * 1024}
    else:
        fields |= {"native": "off", "dtype": "float64"}
    return create_engine(EngineSettings.model_validate({**fields, "model": model, **settings}))
