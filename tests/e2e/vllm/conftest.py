"""Clusters whose workers run vLLM, each in a process of its own, and what vLLM alone answers."""

import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from tests.support.clock import within
from tests.support.engine.model import TRAINED
from tests.support.processes.launcher import Launcher

REFERENCE = Path(__file__).parents[2] / "support" / "processes" / "vllm_reference.py"
REFERENCE_SECONDS = 110.0

WORKERS = ("prefill-0", "decode-0")
VLLM: dict[str, Any] = {
    "engine": "vllm",
    "processes": WORKERS,
    "settings": {"engine.dtype": "float32", "engine.kv_bytes": 128 * 1024 * 1024},
}
"""A shape in which prompts are read and answers written by two processes."""

Reference = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five million random parameters."""
    return write_random_checkpoint(
        tmp_path_factory.mktemp("llama") / "tiny",
        seed=5,
        vocab=4096,
        layers=4,
        hidden=256,
        mlp=768,
        heads=4,
        kv_heads=2,
        head_size=64,
    )


@pytest.fixture(scope="session")
def model_of(llama: Path) -> Mapping[str, Path]:
    """Checkpoints by name."""
    return {"tiny": TRAINED, "llama": llama}


@pytest.fixture(scope="session")
def adapter(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what the random Llama says."""
    return write_random_adapter(tmp_path_factory.mktemp("adapter"), llama, seed=1, scale=0.3)


@pytest.fixture(scope="session")
def reference(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Asks vLLM alone, in a process of its own; as of vllm_reference.py."""

    async def ask(model: Path, prompts: Sequence[Sequence[int]], tokens: int, **more: Any) -> Any:
        directory = tmp_path_factory.mktemp("reference")
        asked, answered, log = (directory / name for name in ("asked", "answered", "log"))
        fields = {"model": str(model), "prompts": prompts, "output_tokens": tokens, **more}
        asked.write_text(json.dumps(fields))
        with log.open("wb") as out:
            process = launcher.launch(
                [str(REFERENCE), str(asked), str(answered)],
                {**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=out,
                stderr=out,
            )
        try:
            async with within(REFERENCE_SECONDS):
                await process.ended()
        finally:
            process.kill()
        assert process.returncode == 0, log.read_text(errors="replace")[-3000:]
        return json.loads(answered.read_text())

    return ask


def prompts(count: int = 30, longest: int = 2000, seed: int = 7) -> list[list[int]]:
    """Return prompts of 1 to `longest` tokens, the first and the last of these lengths."""
    draw = random.Random(seed)
    lengths = [1, longest, *(draw.randint(1, longest) for _ in range(count - 2))]
    return [[draw.randrange(3, 4000) for _ in range(length)] for length in lengths]
