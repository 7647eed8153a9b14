"""A worker holds the record of the model that it serves, so that no download removes it."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from baton.engine.checkpoint.record import (
    RECORD,
    ModelRecord,
    RecordedFile,
    encode_record,
    hold_record,
)
from tests.integration.worker.conftest import ALONE
from tests.support.models.checkpoint import files_of


@pytest.fixture
def recorded(random_model: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint with a completion record."""
    model = tmp_path / "model"
    model.mkdir()
    for name, data in files_of(random_model()).items():
        (model / name).write_bytes(data)
    files = tuple(
        RecordedFile(name, len(data), sha256(data).hexdigest())
        for name, data in files_of(model).items()
    )
    record = ModelRecord("baton.model/1", "hf://org/name", "1" * 40, files)
    (model / RECORD).write_bytes(encode_record(record))
    return model


async def test_a_served_model_is_held(start_service: Any, recorded: Path) -> None:
    worker = await start_service("decode", {**ALONE, "engine.model": recorded})
    assert hold_record(recorded, alone=True) is None
    await worker.stop()
    lock = hold_record(recorded, alone=True)
    assert lock is not None
    os.close(lock)
