"""`baton models`: what its commands print, and how they end."""

import sys
from pathlib import Path

import pytest

from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.engine.checkpoint.record import RECORD
from tests.support.command_line import invoke
from tests.support.models.checkpoint import SHARDS, checkpoint_files, files_of, write_files
from tests.support.models.server import COMMIT, REPOSITORY, ModelServer

FILES = checkpoint_files()


def run(*arguments: str) -> str:
    """Run a command; return its output without line breaks.

    Raises:
        CommandError: it failed.
    """
    done = invoke(["models", *arguments], env={"COLUMNS": "500"})
    if isinstance(done.exception, CommandError):
        raise done.exception
    assert done.exception is None, done.output
    return " ".join(done.output.split())


@pytest.fixture(autouse=True)
def no_token_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_a_download_is_described(tmp_path: Path) -> None:
    target = str(tmp_path / "model")
    with ModelServer(dict(FILES)) as server:
        command = ("pull", f"hf://{REPOSITORY}", target, "--endpoint", server.url)
        first = run(*command)
        again = run(*command)
    told = f"{target} has hf://{REPOSITORY} at revision {COMMIT}: 6 files, 0.4 MiB"
    assert first.startswith(f"{told}; 0.4 MiB downloaded in ")
    assert again == f"{told}, complete already."
    assert {**files_of(Path(target)), RECORD: b""} == {**FILES, RECORD: b""}


def test_without_a_directory_it_goes_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ModelServer(dict(FILES)) as server:
        told = run("pull", f"hf://{REPOSITORY}", "--endpoint", server.url)
    (directory,) = (tmp_path / "baton" / "models").glob("*/*")
    assert told.startswith(f"{directory} has hf://{REPOSITORY}")


def test_a_failure_is_a_sentence_and_exit_code_1(tmp_path: Path) -> None:
    with ModelServer({}) as server, pytest.raises(CommandError) as raised:
        run("pull", "hf://org/other", str(tmp_path / "model"), "--endpoint", server.url)
    assert raised.value.code == EXIT_FAILED
    assert str(raised.value).startswith("hf://org/other does not exist")


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "baton.models.sources.bucket", raising=False)
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.config", None)
    with pytest.raises(CommandError, match=r"needs botocore.*: install baton-serving\[models\]"):
        run("pull", "s3://bucket/model", str(tmp_path / "model"))


def test_patterns_choose_files(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        run(
            "pull", f"hf://{REPOSITORY}", str(target), "--endpoint", server.url,
            "--include", "*.json", "--exclude", "*index*",
        )  # fmt: skip
    assert set(files_of(target)) == {"config.json", "tokenizer.json", RECORD}


def test_verify_says_what_it_compared(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        run("pull", f"hf://{REPOSITORY}", str(target), "--endpoint", server.url)
    assert "has all 6 files of hf://org/name at revision 111" in run("verify", str(target))
    (target / SHARDS[0]).write_bytes(FILES[SHARDS[0]][:-1] + b"?")
    with pytest.raises(CommandError, match="is not the file that was downloaded") as raised:
        run("verify", str(target))
    assert raised.value.code == EXIT_FAILED
    plain = write_files(tmp_path / "plain", FILES)
    assert f"has no {RECORD}: the weights are as long as" in run("verify", str(plain))
    with pytest.raises(CommandError, match="is not a directory"):
        run("verify", str(tmp_path / "none"))


def test_a_cluster_s_models_are_listed_as_before() -> None:
    with pytest.raises(CommandError, match=r"No frontend is reachable at 127.0.0.1:1"):
        run("--address", "127.0.0.1:1")
