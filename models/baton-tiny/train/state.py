"""Saved states of a run: weights, optimizers and progress, in safetensors files."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from train.model import Llama

FILE = "state.safetensors"


def save(
    directory: Path, model: Llama, optimizers: Sequence[Optimizer], progress: dict[str, float]
) -> None:
    """Write the state; an older one stays until the new one is complete."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{index}.{name}"] = torch.as_tensor(value)
    unfinished = directory / f"{FILE}.new"
    whole = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(whole, unfinished, metadata={"progress": json.dumps(progress)})
    unfinished.replace(directory / FILE)


def restore(
    directory: Path, model: Llama, optimizers: Sequence[Optimizer]
) -> dict[str, float] | None:
    """Take up a saved state; None when there is none."""
    path = directory / FILE
    if not path.exists():
        return None
    with safe_open(path, framework="pt") as file:
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        progress: dict[str, float] = json.loads(file.metadata()["progress"])
    model.load_state_dict(
        {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    )
    for number, optimizer in enumerate(optimizers):
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(f"optimizer.{number}."):
                _, _, index, field = name.split(".", 3)
                states.setdefault(int(index), {})[field] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": states, "param_groups": groups})
    return progress
