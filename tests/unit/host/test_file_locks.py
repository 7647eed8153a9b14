"""A file's lock tells whether its owner lives, to any number that ask."""

import fcntl
import os
from pathlib import Path

import pytest

from baton.host.file_locks import create_locked, is_locked, lock_is_free, remove_if_abandoned


def test_a_lock_is_free_only_once_its_owner_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    owner = create_locked(path)
    watcher = os.open(path, os.O_RDWR)
    assert is_locked(path)
    assert not lock_is_free(watcher)
    assert not remove_if_abandoned(path)
    with pytest.raises(FileExistsError):
        create_locked(path)
    os.close(owner)
    assert not is_locked(path)
    assert lock_is_free(watcher)
    assert remove_if_abandoned(path)
    assert not path.exists()
    os.close(watcher)


def test_who_asks_is_no_owner_to_others_that_ask(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    os.close(create_locked(path))
    asking = os.open(path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert not is_locked(path)
    os.close(asking)


def test_a_file_that_is_not_there_has_no_owner(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "lock")
