"""A cache of several revisions, and several processes that download at once."""

import os
import threading
from pathlib import Path

import pytest

from baton.engine.checkpoint.record import PARTIAL_SUFFIX, RECORD, hold_record
from baton.models.errors import PullError
from baton.models.pull.partial import REMOVED, lock_path
from baton.models.pull.progress import PullProgress
from baton.models.pull.pull import ModelPull, PullResult
from baton.models.pull.store import ModelStore
from baton.models.sources.addresses import open_source
from baton.models.sources.select import FileSelection
from tests.integration.models.conftest import LIMITS, Pull
from tests.support.models.checkpoint import SHARDS, checkpoint_files, files_of, write_files
from tests.support.models.server import ModelServer

FILES = checkpoint_files()
FIRST, SECOND = SHARDS


def with_weights_of(seed: int) -> dict[str, bytes]:
    """Return the model with another second shard."""
    return {**FILES, SECOND: checkpoint_files(seed)[SECOND]}


def test_revisions_share_their_files(tmp_path: Path, pull: Pull) -> None:
    cache, link = tmp_path / "cache", tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        first = pull("hub", server, link, cache=cache)
        assert link.is_symlink()
        assert link.resolve() == first.directory
        server.files = with_weights_of(1)
        server.asked.clear()
        second = pull("hub", server, link, cache=cache)
        assert not server.of(FIRST)
        assert server.of(SECOND)
    assert link.resolve() == second.directory != first.directory
    for name in (FIRST, "config.json"):
        assert (first.directory / name).stat().st_ino == (second.directory / name).stat().st_ino
    assert (first.directory / SECOND).read_bytes() == FILES[SECOND]
    assert (second.directory / SECOND).read_bytes() == server.files[SECOND]


def test_a_damaged_file_is_not_shared(tmp_path: Path, pull: Pull) -> None:
    cache = tmp_path / "cache"
    with ModelServer(dict(FILES)) as server:
        first = pull("hub", server, None, cache=cache)
        (first.directory / FIRST).write_bytes(bytes(len(FILES[FIRST])))
        server.files = with_weights_of(1)
        second = pull("hub", server, None, cache=cache)
    assert (second.directory / FIRST).read_bytes() == FILES[FIRST]
    assert (first.directory / FIRST).read_bytes() == bytes(len(FILES[FIRST]))


def test_a_damaged_revision_is_downloaded_again(tmp_path: Path, pull: Pull) -> None:
    cache, link = tmp_path / "cache", tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        first = pull("hub", server, link, cache=cache)
        (first.directory / SECOND).write_bytes(b"x")
        again = pull("hub", server, link, cache=cache)
        assert not again.was_there
        assert pull("hub", server, link, cache=cache).was_there
    assert (link / SECOND).read_bytes() == FILES[SECOND]


def test_the_newest_revisions_and_those_in_use_are_kept(tmp_path: Path, pull: Pull) -> None:
    cache = tmp_path / "cache"
    results: list[PullResult] = []
    with ModelServer(dict(FILES)) as server:
        for seed in range(3):
            server.files = with_weights_of(seed)
            results.append(pull("hub", server, None, cache=cache))
            os.utime(results[-1].directory / RECORD, (seed, seed))
            if seed == 0:
                holder = hold_record(results[0].directory)
        assert holder is not None
        assert results[0].directory.exists(), "a worker serves it"
        abandoned = results[0].directory.with_name(f"old{PARTIAL_SUFFIX}")
        abandoned.mkdir()
        os.close(holder)
        server.files = with_weights_of(3)
        last = pull("hub", server, None, cache=cache)
    kept = {path.name for path in last.directory.parent.iterdir()}
    assert kept == {last.directory.name, results[2].directory.name}
    assert sorted(last.removed) == sorted([results[0].directory, results[1].directory, abandoned])


@pytest.mark.parametrize("with_cache", [True, False])
def test_a_model_that_is_there_is_used_while_its_source_is_away(
    with_cache: bool, tmp_path: Path, pull: Pull
) -> None:
    """A node whose pods start again does not need the hub."""
    target, cache = tmp_path / "model", tmp_path / "cache" if with_cache else None
    with ModelServer(dict(FILES)) as server:
        there = pull("hub", server, target, cache=cache)
        server.asked.clear()
    again = pull("hub", server, target, cache=cache)  # nothing listens there any more
    assert (again.directory, again.was_there, again.source_is_away) == (
        there.directory, True, True,
    )  # fmt: skip
    assert {**files_of(target), RECORD: b""} == {**FILES, RECORD: b""}
    (there.directory / SECOND).write_bytes(b"x")
    with pytest.raises(PullError, match=r"cannot be listed: .* cannot be reached \(3 attempts\)"):
        pull("hub", server, target, cache=cache)


def test_another_revision_is_not_used_instead(tmp_path: Path, aws: Path) -> None:
    with ModelServer(dict(FILES)) as server:
        for name in ("hf://org/name@v1", "hf://org/name"):
            run_pull(name, server.url, tmp_path / "cache")
    with pytest.raises(PullError, match="cannot be listed"):
        run_pull("hf://org/name@v2", server.url, tmp_path / "cache")
    with pytest.raises(PullError, match="cannot be listed"):
        run_pull("hf://org/other@v1", server.url, tmp_path / "cache")
    assert run_pull("hf://org/name@v1", server.url, tmp_path / "cache").source_is_away


def run_pull(address: str, endpoint: str, cache: Path) -> PullResult:
    source = open_source(address, LIMITS, {}, endpoint=endpoint)
    store = ModelStore(None, cache)
    try:
        return ModelPull(source, store, FileSelection(), LIMITS, PullProgress(), int).run()
    finally:
        source.close()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, pull: Pull) -> None:
    cache = tmp_path / "cache"
    with ModelServer(dict(FILES)) as server:
        first = pull("hub", server, None, cache=cache)
        left = write_files(first.directory.with_name(f".old{REMOVED}1234"), FILES)
        server.files = with_weights_of(1)
        pull("hub", server, None, cache=cache)
    assert not left.exists()


def test_a_link_to_elsewhere_is_left_alone(tmp_path: Path, pull: Pull) -> None:
    link = tmp_path / "model"
    link.symlink_to(write_files(tmp_path / "mine", FILES))
    with (
        ModelServer(dict(FILES)) as server,
        pytest.raises(PullError, match="is there already, and no link into the cache"),
    ):
        pull("hub", server, link, cache=tmp_path / "cache")
    assert link.resolve() == tmp_path / "mine"


def test_two_downloads_of_one_model_are_one(tmp_path: Path, pull: Pull) -> None:
    target = tmp_path / "model"
    results: list[PullResult] = []
    with ModelServer(dict(FILES)) as server:
        threads = [
            threading.Thread(target=lambda: results.append(pull("hub", server, target)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.of(SECOND)) == 1
    assert sorted(result.was_there for result in results) == [False, True, True, True]
    assert {**files_of(target), RECORD: b""} == {**FILES, RECORD: b""}
    assert not lock_path(target).exists()


def test_waiting_for_another_download_ends(tmp_path: Path, pull: Pull) -> None:
    target = tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        server.always[SECOND] = "slow"
        failed: list[PullError] = []

        def fail() -> None:
            with pytest.raises(PullError) as raised:
                pull("hub", server, target, attempts=1)
            failed.append(raised.value)

        first = threading.Thread(target=fail)
        first.start()
        while not server.of(SECOND):
            server.released.wait(0.01)
        with pytest.raises(PullError, match=r"Another process has been downloading .*model for"):
            pull("hub", server, target, lock_seconds=0.0)
        server.released.set()
        first.join()
    assert "ended the connection too early" in str(failed[0])
    assert not target.exists()


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path, pull: Pull) -> None:
    target = tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        target.mkdir()
        pull("hub", server, target)  # an empty directory may be there, as a mount's folder
        server.files = with_weights_of(1)
        with pytest.raises(PullError, match=r"has revision 1111.*: choose another directory"):
            pull("hub", server, target)
        other = tmp_path / "other"
        other.mkdir()
        (other / "notes.txt").write_text("mine")
        with pytest.raises(PullError, match="has files that are not of `baton models pull`"):
            pull("hub", server, other)
        with pytest.raises(PullError, match="is there already, and no link into the cache"):
            pull("hub", server, other, cache=tmp_path / "cache")
        (tmp_path / "file").write_text("mine")
        with pytest.raises(PullError, match="file is not a directory"):
            pull("hub", server, tmp_path / "file")
    assert (other / "notes.txt").read_text() == "mine"
    assert {**files_of(target), RECORD: b""} == {**FILES, RECORD: b""}


def test_a_damaged_directory_is_named(tmp_path: Path, pull: Pull) -> None:
    target = tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        pull("hub", server, target)
        (target / SECOND).unlink()
        with pytest.raises(PullError, match=r"is missing, .* Remove .*model first"):
            pull("hub", server, target)


def test_a_full_disk_is_seen_before_the_download(tmp_path: Path, pull: Pull) -> None:
    with ModelServer(dict(FILES)) as server:
        with pytest.raises(PullError, match=r"MiB free, and the download takes 1 MiB more"):
            pull("hub", server, tmp_path / "model", spare_bytes=2**60)
        assert not server.of(SECOND)


def test_an_interrupted_end_is_taken_up(tmp_path: Path, pull: Pull) -> None:
    """Ended between the record and the name: nothing is downloaded again."""
    target = tmp_path / "model"
    with ModelServer(dict(FILES)) as server:
        pull("hub", server, target)
        target.rename(tmp_path / f"model{PARTIAL_SUFFIX}")
        server.asked.clear()
        pull("hub", server, target)
        assert not [one for one in server.asked if "/resolve/" in one.path]
    assert {**files_of(target), RECORD: b""} == {**FILES, RECORD: b""}
