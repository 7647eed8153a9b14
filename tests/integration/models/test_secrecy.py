"""Tokens and credentials go to their server, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baton.models.errors import PullError
from baton.models.limits import PullLimits
from baton.models.secrets import SourceSecrets
from baton.models.sources.addresses import open_source
from tests.integration.models.conftest import Pull
from tests.support.clock import DEADLINE_SECONDS
from tests.support.models.checkpoint import SHARDS, checkpoint_files, files_of
from tests.support.models.server import BUCKET, PREFIX, REPOSITORY, ModelServer

FILES = checkpoint_files()
TOKEN = "hf_" + "a1B2" * 9
SECRET = "very-secret-key"
_MAIN = "from baton.__main__ import main; main()"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def test_a_token_goes_to_its_origin_alone(tmp_path: Path, pull: Pull, token_file: Path) -> None:
    with ModelServer(dict(FILES)) as elsewhere, ModelServer(dict(FILES)) as hub:
        hub.redirect = f"{elsewhere.url}/web"
        pull("hub", hub, tmp_path / "model", token_file=token_file)
        assert all(one.headers["authorization"] == f"Bearer {TOKEN}" for one in hub.asked)
        assert hub.of(SHARDS[0])
        assert elsewhere.of(SHARDS[0])
        assert TOKEN not in repr(elsewhere.asked)


def test_a_token_is_not_sent_in_clear_text(token_file: Path) -> None:
    with pytest.raises(PullError, match="would get the token in clear text"):
        open_source("http://hub.internal/x", PullLimits(), {}, SourceSecrets(token_file))


def test_cookies_are_neither_kept_nor_sent(tmp_path: Path, pull: Pull) -> None:
    """The server sets one with each answer."""
    with ModelServer(dict(FILES)) as server:
        pull("hub", server, tmp_path / "model")
        assert "cookie" not in repr(server.asked).lower()


@pytest.mark.parametrize("outcome", ["comes", "is denied"])
@pytest.mark.parametrize("kind", ["hub", "bucket"])
def test_secrets_are_in_no_output_no_file_and_no_process_list(
    kind: str, outcome: str, tmp_path: Path, token_file: Path, aws: Path
) -> None:
    """The command as it runs in a pod, with every log of its libraries shown."""
    target = tmp_path / "out" / "model"
    with ModelServer(dict(FILES)) as server:
        server.faults[SHARDS[1]] = ["slow"]
        if outcome == "is denied":
            server.always[SHARDS[0]] = "denied"
        source = f"hf://{REPOSITORY}" if kind == "hub" else f"s3://{BUCKET}/{PREFIX}"
        arguments = ["models", "pull", source, str(target), "--endpoint", server.url]
        if kind == "hub":
            arguments += ["--token-file", str(token_file)]
        process = subprocess.Popen(
            [sys.executable, "-c", _LOUD + _MAIN, *arguments],
            env={**os.environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while not server.of(SHARDS[1]) and process.poll() is None:
            server.released.wait(0.01)
        if outcome == "comes":  # it waits for the server
            listed = Path(f"/proc/{process.pid}/cmdline").read_text()
            variables = Path(f"/proc/{process.pid}/environ").read_text()
            assert TOKEN not in listed + variables
            assert SECRET not in listed + variables
        server.released.set()
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        signed = [one.path for one in server.asked if "X-Amz-Signature=" in one.path]
        assert bool(signed) == (kind == "bucket")
    assert process.returncode == (0 if outcome == "comes" else 1), output
    assert TOKEN not in output
    assert SECRET not in output
    for path in signed:
        assert path.rpartition("X-Amz-Signature=")[2] not in output
    written = b"".join(files_of(tmp_path / "out").values())
    assert TOKEN.encode() not in written
    assert SECRET.encode() not in written
    assert b"X-Amz-Signature" not in written


_LOUD = """
import logging
from baton.telemetry import logs
logging.basicConfig(level="INFO")
"""


def test_a_variable_is_in_the_environment_alone(tmp_path: Path) -> None:
    """HF_TOKEN, which some prefer: not in the output of settings either."""
    environment = {**os.environ, "HF_TOKEN": TOKEN, "COLUMNS": "200"}
    with ModelServer(dict(FILES)) as server:
        source = f"hf://{REPOSITORY}"
        for arguments in (
            ["models", "pull", source, str(tmp_path / "model"), "--endpoint", server.url],
            ["config", "show"],
            ["models", "verify", str(tmp_path / "model")],
        ):
            done = subprocess.run(
                [sys.executable, "-c", _MAIN, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                timeout=DEADLINE_SECONDS,
                check=True,
            )
            assert TOKEN not in done.stdout + done.stderr
        assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
