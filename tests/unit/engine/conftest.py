"""Engines over random checkpoints."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from baton.engine.base import Engine
from baton.engine.factory import create_engine
from baton.engine.native.build import build
from baton.engine.native.variants import runnable
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.settings import EngineSettings


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One checkpoint per family, no two of the same shape."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "llama": write_random_checkpoint(root / "llama", "llama", seed=1),
        "llama-tied": write_random_checkpoint(
            root / "llama-tied", "llama", seed=2, tied=True, heads=8, kv_heads=1, shards=3
        ),
        "qwen2": write_random_checkpoint(root / "qwen2", "qwen2", seed=3, kv_heads=4),
        "qwen3": write_random_checkpoint(root / "qwen3", "qwen3", seed=4, head_size=24, layers=3),
    }


MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def native_library() -> Path:
    """The compiled operators, built on first use."""
    if not any(map(shutil.which, ("c++", "g++", "clang++"))) or not runnable():
        pytest.skip("the compiled operators need a C++ compiler, and AVX2 or an ARM CPU")
    return build().path


@pytest.fixture
def make_engine(
    checkpoints: dict[str, Path], request: pytest.FixtureRequest
) -> Iterator[MakeEngine]:
    """Makes engines, `torch` in float64 unless told otherwise; closes them after the test.

    The kind `native` is `torch` with the compiled operators, `bf16` with those that are
    deterministic, in bfloat16.
    """
    made: list[Engine] = []

    def make(kind: str = "torch", family: str = "llama", **settings: object) -> Engine:
        native = kind in ("native", "bf16")
        if native:
            request.getfixturevalue("native_library")
        fields: dict[str, object] = {
            "kind": "torch" if native else kind,
            "native": "required" if native else "off",
            "model": checkpoints[family],
            "dtype": "bfloat16" if kind == "bf16" else "float64",
            "deterministic": "required" if kind == "bf16" else "off",
            "sim_time_scale": 0,
            "kv_bytes": 32 * 1024 * 1024,
        } | settings
        engine = create_engine(EngineSettings.model_validate(fields))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close_engine()


EditedCheckpoint = Callable[..., Path]


@pytest.fixture
def edited_checkpoint(checkpoints: dict[str, Path], tmp_path: Path) -> EditedCheckpoint:
    """Copy a checkpoint with fields of config.json replaced; a field of None is taken out."""

    def edit(family: str = "llama", **fields: object) -> Path:
        path = tmp_path / "edited"
        shutil.copytree(checkpoints[family], path, dirs_exist_ok=True)
        config = json.loads((path / "config.json").read_text()) | fields
        config = {name: value for name, value in config.items() if value is not None}
        (path / "config.json").write_text(json.dumps(config))
        return path

    return edit
