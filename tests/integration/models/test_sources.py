"""What each kind of source is asked, and what it takes for an answer."""

from pathlib import Path

import pytest

from baton.engine.checkpoint.record import RECORD, read_record
from baton.models.errors import PullError
from baton.models.pull.progress import PullProgress
from baton.models.pull.pull import ModelPull
from baton.models.pull.store import ModelStore
from baton.models.secrets import SourceSecrets
from baton.models.sources.addresses import open_source
from baton.models.sources.select import FileSelection
from tests.integration.models.conftest import KINDS, LIMITS, Pull
from tests.support.models.checkpoint import SHARDS, checkpoint_files, files_of, write_files
from tests.support.models.server import COMMIT, ModelServer, sums

FILES = checkpoint_files()
_FILE = b'{"rfilename": "a.json", "size": -1, "blobId": "' + b"2" * 40 + b'"}'
_NEGATIVE = b'{"sha": "' + b"1" * 40 + b'", "siblings": [' + _FILE + b"]}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_says_where_from(kind: str, tmp_path: Path, pull: Pull) -> None:
    with ModelServer(dict(FILES), {"SHA256SUMS": sums(FILES)}) as server:
        result = pull(kind, server, tmp_path / "model")
        assert pull(kind, server, tmp_path / "model").was_there
        named = {
            "web": f"{server.url}/web/",
            "hub": "hf://org/name",
            "bucket": "s3://models/org/name",
        }
        assert result.record.source == named[kind]
    assert result.record == read_record(tmp_path / "model")
    assert {file.path: file.size for file in result.record.files} == {
        path: len(data) for path, data in FILES.items()
    }
    if kind == "hub":
        assert result.record.revision == COMMIT
        origins = {file.path: file.origin.partition(":")[0] for file in result.record.files}
        assert origins["config.json"] == "git-sha1"
        assert origins[SHARDS[0]] == ""


def test_a_served_model_is_a_source(tmp_path: Path, pull: Pull) -> None:
    """A directory with a record, served by any web server or bucket, needs no other list."""
    with ModelServer(dict(FILES)) as server:
        pull("hub", server, tmp_path / "model")
    record = (tmp_path / "model" / RECORD).read_bytes()
    for kind in ("web", "bucket"):
        with ModelServer(dict(FILES), {RECORD: record}) as server:
            pull(kind, server, tmp_path / kind)
        assert {**files_of(tmp_path / kind), RECORD: b""} == {**FILES, RECORD: b""}


def folder(directory: Path, target: Path) -> None:
    source = open_source(str(directory), LIMITS, {})
    store = ModelStore(target, None)
    ModelPull(source, store, FileSelection(), LIMITS, PullProgress(), lambda: None).run()


def test_a_folder_is_copied_and_checked(tmp_path: Path) -> None:
    plain = write_files(tmp_path / "plain", FILES)
    folder(plain, tmp_path / "one")
    folder(tmp_path / "one", tmp_path / "two")
    assert read_record(tmp_path / "two").revision == read_record(tmp_path / "one").revision  # type: ignore[union-attr]
    (tmp_path / "one" / SHARDS[0]).write_bytes(FILES[SHARDS[0]][:-1] + b"?")
    with pytest.raises(PullError, match="does not have the digest that the source gives"):
        folder(tmp_path / "one", tmp_path / "three")
    (plain / "SHA256SUMS").write_bytes(sums({**FILES, "more.json": b""}))
    with pytest.raises(PullError, match=r"has no more.json, which its SHA256SUMS lists"):
        folder(plain, tmp_path / "three")
    (plain / "tokenizer.json").unlink()
    (plain / "tokenizer.json").symlink_to("/etc/hostname")
    with pytest.raises(PullError, match="outside of the checkpoint"):
        folder(plain, tmp_path / "three")
    with pytest.raises(PullError, match="none is not a directory"):
        folder(tmp_path / "none", tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_a_web_server_without_a_list_is_told_how_to_make_one(tmp_path: Path, pull: Pull) -> None:
    with (
        ModelServer(dict(FILES)) as server,
        pytest.raises(PullError, match=r"no baton-model.json and no SHA256SUMS: .*sha256sum \*"),
    ):
        pull("web", server, tmp_path / "model")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("hf://", "not hf://ORGANIZATION/NAME"),
        ("hf://a/b/c", "not hf://ORGANIZATION/NAME"),
        ("hf://../x", "not hf://ORGANIZATION/NAME"),
        ("hf://org/name@", "not hf://ORGANIZATION/NAME"),
        ("hf://org/name@a b", "not hf://ORGANIZATION/NAME"),
        ("s3://", "not s3://BUCKET/PREFIX"),
        ("https://", "not an https:// address"),
        ("https://user:word@host/x", "has a password, a query or a fragment"),
        ("https://host/x?token=abc", "has a password, a query or a fragment"),
        ("pvc://claim/path", "mounted by Kubernetes, not downloaded"),
        ("oci://registry/model:1", "mounted by Kubernetes, not downloaded"),
        ("ftp://host/x", "ftp:// is not known: use hf://"),
    ],
)
def test_addresses_that_name_nothing(address: str, sentence: str, aws: Path) -> None:
    with pytest.raises(PullError, match=sentence) as raised:
        open_source(address, LIMITS, {})
    assert "word" not in str(raised.value).replace("password", "")
    assert "abc" not in str(raised.value)


def test_options_go_with_their_sources(tmp_path: Path, aws: Path) -> None:
    with pytest.raises(PullError, match="--endpoint is for hf:// and s3://"):
        open_source("https://host/x", LIMITS, {}, endpoint="https://hub")
    with pytest.raises(PullError, match="--endpoint is 'hub', which is not an https"):
        open_source("hf://org/name", LIMITS, {}, endpoint="hub")
    with pytest.raises(PullError, match=r"--token-file is for hf:// and https://.*AWS_PROFILE"):
        open_source("s3://b/x", LIMITS, {}, SourceSecrets(tmp_path / "token"))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"<html>", "is not a list of files"),
        (b'{"sha": "main", "siblings": []}', "is not a list of files"),
        (b'{"sha": "' + b"1" * 40 + b'", "siblings": []}', "has no file that is wanted"),
        (_NEGATIVE, "says that a.json has -1 bytes"),
        (b" " * 200, "has more than 100 bytes"),
    ],
)
def test_answers_of_a_hub_that_are_none(
    answer: bytes, sentence: str, tmp_path: Path, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.models.server._hub_answer", lambda _: answer)
    limit = 100 if "more than" in sentence else 2**20
    with ModelServer(dict(FILES)) as server, pytest.raises(PullError, match=sentence):
        pull("hub", server, tmp_path / "model", max_list_bytes=limit)


def test_a_model_that_is_not_there_is_said_so(tmp_path: Path, aws: Path) -> None:
    with ModelServer(dict(FILES)) as server:
        for address, sentence in (
            ("hf://org/other", "does not exist, or not for this token"),
            ("s3://none/x", "cannot be read: S3 answers"),
        ):
            source = open_source(address, LIMITS, {}, endpoint=server.url)
            try:
                with pytest.raises(PullError, match=sentence):
                    source.list_files(lambda _: True)
            finally:
                source.close()


def test_a_server_that_is_not_there_is_said_so(tmp_path: Path, aws: Path) -> None:
    with ModelServer(dict(FILES)) as server:
        gone = server.url
    for address, endpoint in (("hf://org/name", gone), ("s3://b/x", gone), (f"{gone}/web", "")):
        source = open_source(address, LIMITS, {}, endpoint=endpoint)
        store = ModelStore(tmp_path / "model", None)
        try:
            with pytest.raises(PullError, match=r"cannot be (listed|read): "):
                ModelPull(source, store, FileSelection(), LIMITS, PullProgress(), int).run()
        finally:
            source.close()
