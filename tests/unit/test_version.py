"""Which code a process says it is."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from baton import version

COMMIT = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qam", "one"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one commit and one file, which version.py takes for its own."""
    monkeypatch.setattr(version, "root", lambda: tmp_path)
    version.commit.cache_clear()
    (tmp_path / "file").write_text("one")
    for command in (["git", "init", "-q"], ["git", "add", "-A"], COMMIT):
        subprocess.run(command, cwd=tmp_path, check=True)
    yield tmp_path
    version.commit.cache_clear()


def head(checkout: Path) -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True).stdout.strip()


def test_a_checkout_is_its_commit(checkout: Path) -> None:
    assert version.full_version() == f"{version.__version__}+{head(checkout)}"


def test_changes_that_are_not_committed_show(checkout: Path) -> None:
    (checkout / "file").write_text("two")
    assert version.commit() == f"{head(checkout)}.dirty"


def test_an_installed_package_is_what_its_build_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "_commit"
    monkeypatch.setattr(version, "root", lambda: tmp_path)
    monkeypatch.setattr(version, "COMMIT_FILE", note)
    version.commit.cache_clear()
    assert version.full_version() == version.__version__
    note.write_text("62147068\n")
    version.commit.cache_clear()
    assert version.full_version() == f"{version.__version__}+62147068"
    version.commit.cache_clear()
