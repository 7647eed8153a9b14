"""Checkpoints for tests: random weights, a tokenizer of every byte."""

import random
from pathlib import Path

from baton.engine.testing.random_checkpoint import write_random_checkpoint

ROOT = Path(__file__).parents[3]
MODEL = "tiny"
"""The name under which clusters serve a random checkpoint."""
TRAINED = ROOT / "models" / "baton-tiny"
"""The trained model in this repository."""


class RandomModels:
    """Checkpoints with random weights by family, each written once into `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, family: str = "llama") -> Path:
        path = self._directory / family / MODEL
        if not path.exists():
            write_random_checkpoint(path, family=family, seed=7)
        return path


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Return tokens of the random checkpoints; no two lengths or seeds share a prefix."""
    draw = random.Random(f"{length}-{seed}")
    return [draw.randrange(3, 512) for _ in range(length)]
