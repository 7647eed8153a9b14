"""A backup's file: complete and readable with its passphrase, or refused with the reason."""

import re
from pathlib import Path

import msgspec
import pytest

from baton.backup import writer as writing
from baton.backup.errors import BackupError, PassphraseError
from baton.backup.layout import BackupHeader, NamedValue
from baton.backup.reader import Backup
from baton.backup.sealing import KeyDerivation
from baton.backup.writer import BackupWriter

PASSPHRASE = b"correct horse battery"
RECORDS = [(f"tenancy/keys/key_{number:016x}", b"secret-%d" % number) for number in range(9)]
CHEAP = KeyDerivation(b"0123456789abcdef", n=16, r=1, p=1)


def header(**fields: object) -> BackupHeader:
    known = {
        "release": "9.9.9",
        "id": "0123456789abcdef",
        "cluster": "blue",
        "revision": 70,
        "epoch": "e",
        "created_seconds": 1_700_000_000,
        "counts": {"tenancy": len(RECORDS)},
        "kdf": CHEAP,
    }
    return BackupHeader(**{**known, **fields})  # type: ignore[arg-type]


def write(path: Path, *, head: BackupHeader | None = None) -> Path:
    with BackupWriter(path, PASSPHRASE, head or header()) as writer:
        for name, value in RECORDS:
            writer.add(name, value)
        writer.finish()
    return path


def read(path: Path, passphrase: bytes = PASSPHRASE) -> list[NamedValue]:
    saved = Backup(path)
    saved.verify(passphrase)
    return [record for batch in saved.batches(passphrase) for record in batch]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backup of several chunks."""
    monkeypatch.setattr(writing, "CHUNK_BYTES", 20)
    return write(tmp_path / "backup")


def test_what_is_written_is_read_and_nothing_of_it_is_in_clear_text(path: Path) -> None:
    assert read(path) == RECORDS
    assert Backup(path).header == header()
    assert path.stat().st_mode & 0o777 == 0o600
    assert not re.search(rb"secret-|key_0", path.read_bytes())


def test_no_two_backups_have_the_same_key() -> None:
    assert KeyDerivation.new().salt != KeyDerivation.new().salt


def test_every_cut_is_told(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BackupError, match=f"cut short: it ends after {size} bytes"):
            read(path)


def test_every_changed_byte_is_told(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BackupError):
            read(path)


def test_chunks_are_not_moved_or_left_out(path: Path) -> None:
    line, _, rest = path.read_bytes().partition(b"\n")
    check, rest = rest[:16], rest[16:]
    chunks = []
    while rest:
        size = 4 + int.from_bytes(rest[:4], "big")
        chunks.append(rest[:size])
        rest = rest[size:]
    assert len(chunks) > 3
    beginning = line + b"\n" + check
    for wrong in ([*chunks[1:]], [chunks[1], chunks[0], *chunks[2:]], [*chunks[:1], chunks[-1]]):
        path.write_bytes(beginning + b"".join(wrong))
        with pytest.raises(BackupError, match="is damaged after byte"):
            read(path)
    path.write_bytes(beginning + b"".join([*chunks, chunks[0]]))
    with pytest.raises(BackupError, match="goes on after its end"):
        read(path)


def test_another_passphrase_is_told_from_damage(path: Path) -> None:
    with pytest.raises(PassphraseError, match=r"does not open .*, a backup of cluster 'blue'"):
        read(path, b"another passphrase")


def test_a_newer_layout_is_refused_with_the_release_that_wrote_it(tmp_path: Path) -> None:
    fields = msgspec.to_builtins(header(layout=2))
    (tmp_path / "new").write_bytes(msgspec.json.encode({**fields, "counts": "other"}) + b"\n")
    with pytest.raises(BackupError, match=r"has layout 2, .* up to 1: use release 9\.9\.9"):
        Backup(tmp_path / "new")


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b'{"format":"other"}\n'])
def test_what_is_no_backup_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(BackupError, match="is not a backup"):
        Backup(tmp_path / "other")


def test_costly_parameters_are_not_computed(tmp_path: Path) -> None:
    for costly in ({"n": 1 << 30}, {"p": 10_000}, {"n": 15}, {"r": 0}, {"salt": b""}):
        kdf = msgspec.structs.replace(CHEAP, **costly)
        line = msgspec.json.encode(header(kdf=kdf)) + b"\n"
        (tmp_path / "costly").write_bytes(line + b"0" * 16)
        with pytest.raises(BackupError, match="parameters of its key are out of range"):
            read(tmp_path / "costly")


def test_other_records_than_the_header_says_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "backup", head=header(counts={"tenancy": 8}))
    with pytest.raises(BackupError, match="other records than its header says"):
        read(path)


def test_an_unfinished_backup_leaves_the_one_before(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), BackupWriter(path, PASSPHRASE, header()) as writer:
        writer.add("tenancy/x", b"x")
        raise KeyboardInterrupt
    assert read(path) == RECORDS
    assert [one.name for one in path.parent.iterdir()] == ["backup"]
