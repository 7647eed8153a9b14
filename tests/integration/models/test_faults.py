"""Servers that cut, lie, redirect and dawdle: the right bytes, or a sentence and no model."""

from pathlib import Path
from typing import Any

import pytest

from baton.engine.checkpoint.integrity import check_contents, check_directory
from baton.engine.checkpoint.record import JOURNAL, PARTIAL_SUFFIX, RECORD
from baton.models.errors import PullError
from tests.integration.models.conftest import KINDS, Pull
from tests.support.models.checkpoint import SHARDS, checkpoint_files, files_of
from tests.support.models.server import ModelServer, sums
from tests.support.pairwise import pairwise
from tests.support.tls import CERT

SHARD = SHARDS[1]
FILES = checkpoint_files()
ALWAYS = {
    "cut": r"ended the connection too early \(3 attempts",
    "says-less": r"says that .* has \d+ bytes, and the list says \d+",
    "says-more": r"says that .* has \d+ bytes, and the list says \d+",
    "other-bytes": "does not have the digest that the source gives",
    "slow": r"sent nothing for 1 s \(3 attempts",
    "no-range": "",
    "wrong-range": "",
    "busy": r"answers HTTP 503 \(3 attempts",
    "denied": r"denies access to .* \(HTTP 403\)",
    "gone": r"does not have .* \(HTTP 404\)",
    "compressed": "compresses .* although it was asked not to",
    "longer": "is longer than the",
}
"""What is said where it happens to each request; empty: it does no harm."""
FINAL = ("says-less", "says-more", "denied", "gone", "compressed", "longer")
"""What is not tried again."""
HOW_OFTEN = ("once", "always", "after a cut")
WHERE = ("here", "elsewhere")
MATRIX = pairwise(tuple(ALWAYS), KINDS, HOW_OFTEN, WHERE)


def expected(fault: str, how_often: str) -> str:
    """Return the sentence; empty: the model comes."""
    if fault == "wrong-range":  # only continued requests have a range
        return "" if how_often == "once" else "sends another part of it"
    if fault in FINAL or how_often == "always":
        return ALWAYS[fault]
    return ""


@pytest.mark.parametrize(("fault", "kind", "how_often", "where"), MATRIX)
def test_the_right_bytes_or_a_sentence(
    fault: Any, kind: str, how_often: str, where: str, tmp_path: Path, pull: Pull
) -> None:
    target = tmp_path / "model"
    with (
        ModelServer(FILES) as elsewhere,
        ModelServer(FILES, {"SHA256SUMS": sums(FILES)} if kind == "web" else {}) as server,
    ):
        if where == "elsewhere":
            server.redirect = f"{elsewhere.url}/web"
        serving = elsewhere if where == "elsewhere" else server
        if how_often == "always":
            serving.always[SHARD] = fault
            if fault == "wrong-range":
                serving.faults[SHARD] = ["cut"]
        else:
            serving.faults[SHARD] = [fault] if how_often == "once" else ["cut", fault]
        limits = {"read_seconds": 1.0} if fault == "slow" else {}
        sentence = expected(fault, how_often)
        if sentence:
            with pytest.raises(PullError, match=sentence) as raised:
                pull(kind, server, target, **limits)
            assert_sentence(str(raised.value).replace(server.url, "the source"))
            assert_no_model(target)
            serving.always.clear()
            serving.faults.clear()
            limits = {}
        result = pull(kind, server, target, **limits)
    assert result.directory == target
    assert_model(target)


def test_a_download_goes_on_where_it_stopped(tmp_path: Path, pull: Pull) -> None:
    target = tmp_path / "model"
    with ModelServer(FILES) as server:
        server.faults[SHARD] = ["cut", "denied"]
        with pytest.raises(PullError, match="denies access"):
            pull("hub", server, target)
        kept = (tmp_path / f"model{PARTIAL_SUFFIX}" / SHARD).stat().st_size
        assert kept == len(FILES[SHARD]) // 2
        server.asked.clear()
        pull("hub", server, target)
        assert [one.headers.get("range") for one in server.of(SHARD)] == [f"bytes={kept}-"]
        assert not [path for path in FILES if path != SHARD and len(server.of(path)) > 1]
    assert_model(target)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_revision_replaces_what_was_begun_of_the_old(
    kind: str, tmp_path: Path, pull: Pull
) -> None:
    target = tmp_path / "model"
    old = checkpoint_files(seed=7)
    extra = {"SHA256SUMS": sums(old)} if kind == "web" else {}
    with ModelServer(dict(old), extra) as server:
        server.faults[SHARD] = ["cut", "denied"]
        with pytest.raises(PullError, match="denies access"):
            pull(kind, server, target)
        server.files = FILES
        server.extra = {"SHA256SUMS": sums(FILES)} if kind == "web" else {}
        pull(kind, server, target)
    assert_model(target)


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_bucket_without_a_list_has_digests_of_its_own(
    in_parts: bool, tmp_path: Path, pull: Pull
) -> None:
    target = tmp_path / "model"
    with ModelServer(FILES, in_parts=in_parts) as server:
        server.always[SHARD] = "other-bytes"
        kind = "md5-parts" if in_parts else "md5"
        with pytest.raises(PullError, match=f"it says {kind}:"):
            pull("bucket", server, target)
        server.always.clear()
        pull("bucket", server, target)
    assert_model(target)


def test_a_bucket_without_digests_is_refused_with_the_remedy(tmp_path: Path, pull: Pull) -> None:
    target = tmp_path / "model"
    with ModelServer(FILES, encrypted=True) as server:
        with pytest.raises(
            PullError, match=r"no digest of .* that can be checked: put a SHA256SUMS"
        ):
            pull("bucket", server, target)
        assert_no_model(target)
        server.extra["SHA256SUMS"] = sums(FILES)
        pull("bucket", server, target)
    assert_model(target)


def test_a_source_whose_checkpoint_is_damaged_is_no_model(tmp_path: Path, pull: Pull) -> None:
    """Right digests of wrong files: the index and the headers decide."""
    target = tmp_path / "model"
    mixed = {**FILES, SHARDS[0]: FILES[SHARDS[1]]}
    cut = {**FILES, SHARD: FILES[SHARD][:-1]}
    for files, sentence in (
        (mixed, f"is not a usable checkpoint: .*{SHARDS[0]} has no tensor layer.0"),
        (cut, f"is not a usable checkpoint: .*{SHARD} is incomplete"),
        ({**FILES, "/evil.json": b""}, "a file that cannot be stored: '/evil.json'"),
        ({"pytorch_model.bin": b"x"}, "has no file that is wanted"),
    ):
        with ModelServer(dict(files)) as server, pytest.raises(PullError, match=sentence):
            pull("hub", server, target)
        assert_no_model(target)
    assert not (tmp_path.parent / "evil.json").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("loop", "is redirected more than 5 times"),
        ("ftp://127.0.0.1/x", "from http to ftp://127.0.0.1, which is not followed"),
        ("file:///etc", "no address|which is not followed"),
        ("http://user:word@127.0.0.1/x", "to an address with a password"),
    ],
)
def test_redirects_that_are_not_followed(
    target: str, sentence: str, tmp_path: Path, pull: Pull
) -> None:
    with ModelServer(FILES) as server:
        server.redirect = f"{server.url}/web" if target == "loop" else target
        with pytest.raises(PullError, match=sentence):
            pull("hub", server, tmp_path / "model")
    assert_no_model(tmp_path / "model")


def test_https_leads_to_https_only(
    tmp_path: Path, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(FILES) as plain, ModelServer(FILES, secure=True) as secure:
        with pytest.raises(PullError, match=r"certificate of 127.0.0.1 cannot be verified"):
            pull("hub", secure, tmp_path / "model")
        monkeypatch.setenv("SSL_CERT_FILE", str(CERT))
        secure.redirect = f"{plain.url}/web"
        with pytest.raises(PullError, match=r"from https to http://127.0.0.1, which is not"):
            pull("hub", secure, tmp_path / "model")
        assert not plain.of(SHARD)
        secure.redirect = ""
        plain.redirect = f"{secure.url}/web"
        pull("hub", plain, tmp_path / "model")
    assert_model(tmp_path / "model")


def assert_sentence(text: str) -> None:
    assert text.endswith(".")
    assert "\n" not in text
    assert "http://" not in text


def assert_no_model(target: Path) -> None:
    """Nothing is at the target, and what was begun is not taken for a model."""
    assert not target.exists()
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    if partial.exists():
        assert (partial / JOURNAL).exists()
        assert not (partial / RECORD).exists()


def assert_model(target: Path) -> None:
    found = files_of(target)
    assert found.pop(RECORD)
    assert found == FILES
    check_directory(target)
    check_contents(target, weights=True, digests="all")
    left = sorted(path.name for path in target.parent.iterdir())
    assert [name for name in left if name.startswith((".", "model"))] == ["model"]
