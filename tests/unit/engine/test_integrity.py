"""Half copied, mixed up, hostile: each checkpoint is refused with a sentence, before it is used."""

import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from baton.engine.checkpoint import integrity
from baton.engine.checkpoint.integrity import (
    DigestCheck,
    check_contents,
    check_directory,
    mark_unchanged,
)
from baton.engine.checkpoint.record import (
    JOURNAL,
    RECORD,
    ModelRecord,
    RecordedFile,
    encode_record,
    hold_record,
    read_record,
)
from baton.engine.support.documents import CheckpointError
from baton.engine.support.preflight import check_engine
from baton.settings import EngineSettings, StartupError
from tests.support.models.checkpoint import (
    INDEX,
    SHARDS,
    checkpoint_files,
    files_of,
    safetensors,
    write_files,
)

FIRST, SECOND = SHARDS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_files(tmp_path / "model", checkpoint_files(shard_bytes=1000))


def record_files(directory: Path) -> None:
    """Give a checkpoint a completion record."""
    files = tuple(
        RecordedFile(path, len(data), sha256(data).hexdigest(), mtime=1_000_000)
        for path, data in files_of(directory).items()
    )
    record = ModelRecord("baton.model/1", "hf://org/name", "1" * 40, files)
    mark_unchanged(directory, record)
    (directory / RECORD).write_bytes(encode_record(record))


def check(directory: Path, digests: DigestCheck = "changed") -> None:
    check_directory(directory)
    check_contents(directory, weights=True, digests=digests)


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def reindex(model: Path, weights: object) -> None:
    (model / INDEX).write_text(json.dumps({"weight_map": weights}))


def link(model: Path, name: str, target: str | Path) -> None:
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(target)


def header(text: bytes) -> Callable[[bytes], bytes]:
    return lambda _: len(text).to_bytes(8, "little") + text + b"\0" * 8


WITHOUT_RECORD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard is missing": (lambda m: (m / SECOND).unlink(), f"{SECOND} is missing .*names it"),
    "a shard is cut": (
        lambda m: edit(m / SECOND, lambda data: data[:-1]),
        rf"{SECOND} is incomplete \(it has \d+ of \d+ bytes\): download the checkpoint again",
    ),
    "a shard is cut within its header": (
        lambda m: edit(m / SECOND, lambda data: data[:20]),
        f"{SECOND} is incomplete .20 bytes are less than its header",
    ),
    "a shard is empty": (
        lambda m: edit(m / SECOND, lambda _: b""),
        f"{SECOND} is incomplete .0 bytes",
    ),
    "a shard is too long": (
        lambda m: edit(m / SECOND, lambda data: data + b"!"),
        rf"{SECOND} is damaged: it has \d+ bytes, and its header names \d+",
    ),
    "one shard twice": (
        lambda m: shutil.copy(m / FIRST, m / SECOND),
        f"{SECOND} has no tensor layer.1, which the index says it has",
    ),
    "a header of 4 GiB": (
        lambda m: edit(m / SECOND, lambda data: (2**32).to_bytes(8, "little") + data[8:]),
        f"{SECOND} is damaged: its header would have 4294967296 bytes",
    ),
    "a header of 2**64 - 1 bytes": (
        lambda m: edit(m / SECOND, lambda data: b"\xff" * 8 + data[8:]),
        "its header would have 18446744073709551615 bytes",
    ),
    "a header that is no JSON": (
        lambda m: edit(m / SECOND, header(b"{{{{")),
        f"{SECOND} is damaged: its header is no JSON",
    ),
    "a header of another JSON": (
        lambda m: edit(m / SECOND, header(b"[1, 2]")),
        "its header is no JSON of tensors",
    ),
    "a header that nests deeply": (
        lambda m: edit(m / SECOND, header(b'{"a":' + b"[" * 100_000 + b"}")),
        "its header is no JSON of tensors",
    ),
    "tensors that overlap": (
        lambda m: edit(
            m / SECOND,
            header(b'{"a":{"data_offsets":[0,8]},"b":{"data_offsets":[4,8]}}'),
        ),
        "tensors overlap, or leave a gap",
    ),
    "a tensor that ends before it begins": (
        lambda m: edit(m / SECOND, header(b'{"a":{"data_offsets":[0,-8]}}')),
        "tensors overlap, or leave a gap",
    ),
    "a pointer of Git LFS": (
        lambda m: edit(m / SECOND, lambda _: b"version https://git-lfs.github.com/spec/v1\noid"),
        f"{SECOND} is a pointer of Git LFS.*git lfs pull",
    ),
    "an index that is no JSON": (
        lambda m: edit(m / INDEX, lambda data: data[:-3]),
        f"{INDEX} is damaged: it has no weight_map",
    ),
    "an index of nothing": (lambda m: reindex(m, {}), f"{INDEX} is damaged: its weight_map is"),
    "an index of numbers": (lambda m: reindex(m, {"a": 1}), f"{INDEX} is damaged"),
    "an index that leads upwards": (
        lambda m: reindex(m, {"a": "../other.safetensors"}),
        "'../other.safetensors', which is not a file in the same directory",
    ),
    "no weights": (
        lambda m: [path.unlink() for path in m.glob("*safetensors*")],
        "model.safetensors is missing",
    ),
    "a link out of the tree": (
        lambda m: link(m, "tokenizer.json", "/etc/hostname"),
        "tokenizer.json is a symbolic link to /etc/hostname, outside of the checkpoint",
    ),
    "a relative link out of the tree": (
        lambda m: link(m, "tokenizer.json", "../../../../../../etc/hostname"),
        "tokenizer.json is a symbolic link to /etc/hostname, outside of the checkpoint",
    ),
    "a link in a folder": (
        lambda m: [(m / "more").mkdir(), link(m, "more/x.jinja", "/etc/hostname")],
        "more/x.jinja is a symbolic link",
    ),
    "a folder that is a link": (
        lambda m: link(m, "additional_chat_templates", "/etc"),
        "additional_chat_templates is a symbolic link to /etc",
    ),
    "a link to nothing": (
        lambda m: link(m, "tokenizer.json", "nothing"),
        "tokenizer.json is a symbolic link to nothing",
    ),
    "links in a circle": (
        lambda m: link(m, "tokenizer.json", "tokenizer.json"),
        "tokenizer.json is a symbolic link to nothing",
    ),
    "a pipe": (
        lambda m: [(m / "config.json").unlink(), os.mkfifo(m / "config.json")],
        "config.json is neither a file nor a folder",
    ),
    "an unfinished download": (
        lambda m: (m / JOURNAL).write_text("{}"),
        "model is an unfinished download: run the same `baton models pull` again",
    ),
}


@pytest.mark.parametrize("name", WITHOUT_RECORD)
def test_a_bad_checkpoint_is_refused_with_a_sentence(name: str, model: Path) -> None:
    check(model)
    spoil, sentence = WITHOUT_RECORD[name]
    spoil(model)
    with pytest.raises(CheckpointError, match=sentence) as raised:
        check(model)
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


WITH_RECORD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file is missing": (
        lambda m: (m / "tokenizer.json").unlink(),
        "tokenizer.json is missing, which the completion record lists",
    ),
    "a file is half copied": (
        lambda m: edit(m / "tokenizer.json", lambda data: data[:5]),
        "tokenizer.json has 5 bytes, and its completion record says 18",
    ),
    "a byte differs": (
        lambda m: edit(m / FIRST, lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        f"{FIRST} is not the file that was downloaded: its SHA-256 is",
    ),
    "the record is cut": (
        lambda m: edit(m / RECORD, lambda data: data[:-20]),
        f"{RECORD} is damaged",
    ),
    "the record leads upwards": (
        lambda m: edit(m / RECORD, lambda data: data.replace(b"LICENSE", b"../LICE")),
        f"{RECORD} is damaged: '../LICE' does not name a file below",
    ),
    "the record is of another format": (
        lambda m: edit(m / RECORD, lambda data: data.replace(b"baton.model/1", b"baton.model/9")),
        f"{RECORD} is damaged",
    ),
}


@pytest.mark.parametrize("name", WITH_RECORD)
def test_a_checkpoint_that_differs_from_its_record_is_refused(name: str, model: Path) -> None:
    record_files(model)
    check(model)
    spoil, sentence = WITH_RECORD[name]
    spoil(model)
    with pytest.raises(CheckpointError, match=sentence):
        check(model)


def flip_behind_its_time(path: Path) -> None:
    before = path.stat()
    edit(path, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_all_digests_are_compared_where_that_is_set(model: Path) -> None:
    record_files(model)
    flip_behind_its_time(model / FIRST)
    check(model)
    with pytest.raises(CheckpointError, match="is not the file that was downloaded"):
        check(model, "all")


def test_sizes_alone_are_compared_where_that_is_set(model: Path) -> None:
    record_files(model)
    edit(model / FIRST, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    check(model, "off")
    (model / "LICENSE").write_text("")
    with pytest.raises(CheckpointError, match="LICENSE has 0 bytes"):
        check(model, "off")


def test_files_of_the_recorded_time_are_not_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    compute = integrity.file_digest

    def digest(path: Path) -> str:
        read.append(path.name)
        return compute(path)

    monkeypatch.setattr(integrity, "file_digest", digest)
    record_files(model)
    check(model)
    assert read == []
    (model / "LICENSE").touch()
    check(model)
    assert read == ["LICENSE"]
    record = read_record(model)
    assert record is not None
    assert mark_unchanged(model, record)
    check(model)
    assert read == ["LICENSE"]


def test_a_copy_is_complete_or_refused(model: Path, tmp_path: Path) -> None:
    """However far a copy is, in the order of `cp -r`, nobody takes it for the model."""
    record_files(model)
    copy = tmp_path / "copy"
    copy.mkdir()
    names = sorted(files_of(model), key=lambda name: name != RECORD)
    for name in names:
        if (copy / RECORD).exists():
            with pytest.raises(CheckpointError, match="the copy of the checkpoint is not complete"):
                check(copy)
        shutil.copy(model / name, copy / name)
    check(copy)


def test_a_directory_that_is_still_being_downloaded_is_named(tmp_path: Path) -> None:
    write_files(tmp_path / "model.partial", {JOURNAL: b"{}"})
    with pytest.raises(CheckpointError, match=r"model.partial is an unfinished download of it"):
        check_directory(tmp_path / "model")


def test_snapshots_of_the_hubs_cache_are_links_to_its_blobs(model: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name in files_of(model):
        (model / name).rename(repository / "blobs" / name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    check(snapshot)
    link(snapshot, "tokenizer.json", "/etc/hostname")
    with pytest.raises(CheckpointError, match="outside of the checkpoint"):
        check(snapshot)


def test_links_within_the_tree_and_to_the_tree_are_followed(model: Path, tmp_path: Path) -> None:
    (model / "tokenizer.json").rename(model / "real.json")
    link(model, "tokenizer.json", "real.json")
    (tmp_path / "current").symlink_to("model")
    check(tmp_path / "current")


def test_a_tree_has_bounds(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.engine.checkpoint.tree.MAX_ENTRIES", 3)
    with pytest.raises(CheckpointError, match="has more than 3 files"):
        check_directory(model)


def test_metadata_of_a_header_is_no_tensor(tmp_path: Path) -> None:
    data = safetensors({"a": b"12345678"})
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    text = json.dumps({"__metadata__": {"format": "pt", "shape": "x"}, **entries}).encode()
    whole = len(text).to_bytes(8, "little") + text + b"12345678"
    check(write_files(tmp_path / "model", {"model.safetensors": whole}))


def test_an_engine_is_not_made_of_a_bad_checkpoint(model: Path) -> None:
    """The preflight of `baton up`, and of each worker."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }
    (model / "config.json").write_text(json.dumps(config))
    check_engine(EngineSettings(model=model))
    edit(model / SECOND, lambda data: data[:-1])
    with pytest.raises(StartupError, match=f"{SECOND} is incomplete"):
        check_engine(EngineSettings(model=model))
    check_engine(EngineSettings(kind="sim", model=model))  # which reads no weights
    link(model, "tokenizer.json", "/etc/hostname")
    with pytest.raises(StartupError, match="outside of the checkpoint"):
        check_engine(EngineSettings(kind="sim", model=model))


def test_a_record_is_held_by_many_or_by_one(model: Path) -> None:
    assert hold_record(model) is None  # there is none
    record_files(model)
    first, second = hold_record(model), hold_record(model)
    assert first is not None
    assert second is not None
    assert hold_record(model, alone=True) is None
    os.close(first)
    os.close(second)
    alone = hold_record(model, alone=True)
    assert alone is not None
    assert hold_record(model) is None
    os.close(alone)
