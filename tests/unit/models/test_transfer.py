"""One file: whatever its source does, the right bytes or a sentence."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import BinaryIO

import pytest

from baton.models.digests import Digest
from baton.models.errors import PullError, TransientError
from baton.models.limits import PullLimits
from baton.models.pull import transfer as transfer_module
from baton.models.pull.progress import PullProgress
from baton.models.pull.transfer import FileTransfer, PullStoppedError
from baton.models.sources.source import FileBody, ModelListing, RemoteFile

DATA = bytes(range(256)) * 8
FILE = RemoteFile(
    "model.safetensors", len(DATA), Digest("sha256", hashlib.sha256(DATA).hexdigest())
)
LIMITS = PullLimits(attempts=3, backoff_seconds=0.0, max_backoff_seconds=0.0, progress_bytes=1000)


class Scripted:
    """A source whose answers are given: each a function of the offset."""

    name = "hf://org/name"

    def __init__(self, *answers: Callable[[int], FileBody]) -> None:
        self.answers = list(answers)
        self.offsets: list[int] = []

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        raise AssertionError

    @contextmanager
    def open(self, file: RemoteFile, offset: int) -> Iterator[FileBody]:
        self.offsets.append(offset)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        yield answer(offset)

    def close(self) -> None: ...


def pieces(data: bytes, size: int, end: Exception | None = None) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]
    if end is not None:
        raise end


def whole(offset: int) -> FileBody:
    return FileBody(offset, pieces(DATA[offset:], 100))


def from_the_start(_: int) -> FileBody:
    return FileBody(0, pieces(DATA, 100))


def cut(after: int) -> Callable[[int], FileBody]:
    """Return an answer that ends after some bytes more."""
    return lambda offset: FileBody(
        offset, pieces(DATA[offset : offset + after], 100, TransientError("the line broke"))
    )


def silent_end(offset: int) -> FileBody:
    return FileBody(offset, pieces(DATA[offset : offset + 10], 10))


def other(offset: int) -> FileBody:
    return FileBody(offset, pieces(bytes(len(DATA) - offset), 100))


def longer(offset: int) -> FileBody:
    return FileBody(offset, pieces(DATA[offset:] + b"!", 100))


def transfer(
    source: Scripted, path: Path, limits: PullLimits = LIMITS, file: RemoteFile = FILE
) -> tuple[FileTransfer, PullProgress]:
    progress = PullProgress()
    return FileTransfer(source, file, path, limits, Event(), progress), progress


GOOD: dict[str, tuple[Sequence[Callable[[int], FileBody]], bytes, list[int]]] = {
    "at once": ([whole], b"", [0]),
    "continued": ([whole], DATA[:700], [700]),
    "cut once": ([cut(300), whole], b"", [0, 300]),
    "cut again and again, with progress": ([cut(1000)], b"", [0, 1000, 2000]),
    "a source that always begins at 0": ([from_the_start], DATA[:700], [700]),
    "the beginning is another file's": ([whole], b"x" * 700, [700, 0]),
    "what is there is longer": ([whole], DATA + b"!", [0]),
    "damaged on the way, once": ([other, whole], b"", [0, 0]),
    "ended without a word": ([silent_end, whole], b"", [0, 10]),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_right_bytes_come(name: str, tmp_path: Path) -> None:
    answers, there, offsets = GOOD[name]
    path = tmp_path / "file"
    if there:
        path.write_bytes(there)
    source = Scripted(*answers)
    moved, progress = transfer(source, path)
    assert moved.run() == FILE.digest.value  # type: ignore[union-attr]
    assert path.read_bytes() == DATA
    assert source.offsets == offsets
    assert progress.done_bytes == len(DATA)
    assert 0 <= progress.present_bytes <= min(len(there), len(DATA))


BAD: dict[str, tuple[Sequence[Callable[[int], FileBody]], str, int]] = {
    "cut each time": (
        [cut(100)],
        r"cannot be downloaded: the line broke \(3 attempts, 300 of 2048 bytes are kept\)",
        300,
    ),
    "a source that begins at 0 and is cut": (
        [lambda _: FileBody(0, pieces(DATA[:500], 100, TransientError("the line broke")))],
        "500 of 2048 bytes are kept",
        500,
    ),
    "other bytes each time": ([other], "does not have the digest that the source gives", 0),
    "longer than listed": ([longer], "is longer than the 2048 bytes that the source lists", 0),
}


@pytest.mark.parametrize("name", BAD)
def test_or_a_sentence(name: str, tmp_path: Path) -> None:
    answers, sentence, kept = BAD[name]
    moved, _ = transfer(Scripted(*answers), tmp_path / "file")
    with pytest.raises(PullError, match=sentence) as raised:
        moved.run()
    assert str(raised.value).startswith("hf://org/name: model.safetensors ")
    assert (tmp_path / "file").stat().st_size == kept


def test_a_trickle_is_given_up(tmp_path: Path) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 20.0  # a piece each 20 s
        return now

    source = Scripted(lambda offset: FileBody(offset, pieces(DATA[offset:], 1)))
    moved = FileTransfer(
        source, FILE, tmp_path / "file", PullLimits(attempts=2, backoff_seconds=0.0), Event(),
        PullProgress(), clock,
    )  # fmt: skip
    with pytest.raises(PullError, match=r"only 3 bytes came in 60 s \(2 attempts, 6 of 2048"):
        moved.run()


def test_a_file_of_no_bytes_is_there_without_a_request(tmp_path: Path) -> None:
    source = Scripted(whole)
    digest = Digest("sha256", hashlib.sha256().hexdigest())
    moved, _ = transfer(source, tmp_path / "file", file=RemoteFile("empty", 0, digest))
    assert moved.run() == digest.value
    assert source.offsets == []
    assert (tmp_path / "file").read_bytes() == b""


def test_it_stops_when_it_is_told_to(tmp_path: Path) -> None:
    stop = Event()

    def stopped(offset: int) -> FileBody:
        def read() -> Iterator[bytes]:
            yield DATA[:100]
            stop.set()
            yield DATA[100:200]

        return FileBody(offset, read())

    moved = FileTransfer(Scripted(stopped), FILE, tmp_path / "file", LIMITS, stop, PullProgress())
    with pytest.raises(PullStoppedError):
        moved.run()
    assert (tmp_path / "file").read_bytes() == DATA[:100]


def test_waiting_for_the_next_attempt_stops_too(tmp_path: Path) -> None:
    stop = Event()
    stop.set()
    moved = FileTransfer(
        Scripted(lambda _: FileBody(0, pieces(b"", 1))), FILE, tmp_path / "file",
        PullLimits(backoff_seconds=3600.0, max_backoff_seconds=3600.0), stop, PullProgress(),
    )  # fmt: skip
    with pytest.raises(PullStoppedError):
        moved.run()


def test_links_are_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to("target")
    moved, _ = transfer(Scripted(whole), tmp_path / "link")
    with pytest.raises(PullError, match="cannot be written"):
        moved.run()
    os.link(tmp_path / "target", tmp_path / "hard")
    moved, _ = transfer(Scripted(whole), tmp_path / "hard")
    moved.run()
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert (tmp_path / "hard").read_bytes() == DATA


def test_a_full_disk_is_said_and_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 1000

    def write(out: BinaryIO, piece: bytes) -> None:
        if os.fstat(out.fileno()).st_size + len(piece) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        out.write(piece)

    monkeypatch.setattr(transfer_module, "_write", write)
    moved, _ = transfer(Scripted(whole), tmp_path / "file")
    with pytest.raises(PullError, match=r"The disk of .* is full, and .* needs 1048 bytes more"):
        moved.run()
    assert (tmp_path / "file").read_bytes() == DATA[:room]


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 4.0), (20.0, 20.0), (1e9, 30.0)])
def test_backoff_is_bounded_whatever_a_server_asks(asked: float, waited: float) -> None:
    assert PullLimits().backoff(3, asked) == waited
