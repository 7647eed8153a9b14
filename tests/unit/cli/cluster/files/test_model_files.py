"""A checkpoint that lacks something is refused before anything starts."""

from pathlib import Path

import pytest

from baton.cli.cluster.local.files.model_files import require
from baton.cli.shared.errors import CommandError

FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_bytes(b"{}")
    return tmp_path


def test_a_whole_checkpoint_is_taken(checkpoint: Path) -> None:
    assert require(checkpoint, with_weights=True) == checkpoint.resolve()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "tokenizer.json"),
        ("model.safetensors", "safetensors"),
    ],
)
def test_a_missing_file_is_named(checkpoint: Path, name: str, said: str) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(CommandError, match=said) as caught:
        require(checkpoint, with_weights=True)
    assert caught.value.code == 2
    assert str(checkpoint) in str(caught.value)


def test_an_engine_that_reads_no_weights_needs_none(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    require(checkpoint, with_weights=False)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="does not exist"):
        require(tmp_path / "absent", with_weights=True)
