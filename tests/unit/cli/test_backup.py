"""`baton backup` and `baton restore`: what is refused before etcd is asked."""

from pathlib import Path

import pytest

from baton.backup.layout import BackupHeader
from baton.backup.sealing import KeyDerivation
from baton.backup.writer import BackupWriter
from baton.cli.admin.backup.command import remove_old
from baton.cli.shared.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from tests.support.command_line import invoke

PASSPHRASE = "correct horse battery"
CHEAP = KeyDerivation(b"0123456789abcdef", n=16, r=1, p=1)


def run(*arguments: str, **variables: str) -> str:
    done = invoke(arguments, env={"COLUMNS": "500", **variables})
    if isinstance(done.exception, CommandError):
        raise done.exception
    assert done.exception is None, done.output
    return " ".join(done.output.split())


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "backup"
    header = BackupHeader(
        release="9.9.9",
        id="0123456789abcdef",
        cluster="blue",
        revision=70,
        epoch="e",
        created_seconds=1_700_000_000,
        counts={"tenancy": 1, "audit": 0},
        kdf=CHEAP,
    )
    with BackupWriter(path, PASSPHRASE.encode(), header) as writer:
        writer.add("tenancy/keys/key_0123456789abcdef", b"{}")
        writer.finish()
    return path


def test_a_backup_is_verified_without_a_cluster(sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text(PASSPHRASE + "\r\n")
    told = run("backup", str(sealed), "--verify", "--passphrase-file", str(tmp_path / "passphrase"))
    assert told == (
        f"{sealed} is complete: 1 records of cluster blue at revision 70, made 2023-11-14 22:13:20 "
        "UTC by release 9.9.9 (tenants, projects, accounts, keys and classes: 1)."
    )
    variables = {"BATON_BACKUP_PASSPHRASE": PASSPHRASE}
    assert '"records": 1' in run("backup", str(sealed), "--verify", "--json", **variables)


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        ((), {}, "set --passphrase-file or BATON_BACKUP_PASSPHRASE"),
        (("--passphrase-file", "FILE"), {"BATON_BACKUP_PASSPHRASE": "x" * 12}, "two passphrases"),
        ((), {"BATON_BACKUP_PASSPHRASE": "short"}, "has 5 characters: it must have at least 12"),
        (("--passphrase-file", "nowhere"), {}, "nowhere cannot be read: No such file"),
        (("--passphrase-file", "/dev/zero"), {}, "has more than 4096 bytes"),
    ],
)
@pytest.mark.parametrize("command", ["backup", "restore"])
def test_without_a_passphrase_nothing_happens(
    command: str,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    sentence: str,
    sealed: Path,
) -> None:
    words = [str(sealed) if word == "FILE" else word for word in arguments]
    with pytest.raises(CommandError, match=sentence) as caught:
        run(command, str(sealed), *words, **variables)
    assert caught.value.code == EXIT_USAGE


def test_the_passphrase_is_no_argument(sealed: Path) -> None:
    for command in ("backup", "restore"):
        done = invoke([command, str(sealed), "--passphrase", PASSPHRASE])
        assert done.exit_code == EXIT_USAGE
        assert "No such option" in done.output


def test_a_wrong_file_fails(sealed: Path) -> None:
    variables = {"BATON_BACKUP_PASSPHRASE": "another passphrase"}
    for command in (("backup", "--verify"), ("restore", "--etcd-endpoint", "127.0.0.1:1")):
        path = str(sealed) + ("" if command[0] == "backup" else "-missing")
        with pytest.raises(CommandError, match=r"does not open|cannot be read") as caught:
            run(command[0], path, *command[1:], **variables)
        assert caught.value.code == EXIT_FAILED


def test_a_backup_goes_into_a_directory_that_exists(tmp_path: Path) -> None:
    variables = {"BATON_BACKUP_PASSPHRASE": PASSPHRASE}
    with pytest.raises(CommandError, match="none is not a directory"):
        run("backup", str(tmp_path / "none" / "backup"), **variables)


def test_old_backups_of_the_same_cluster_are_removed(tmp_path: Path) -> None:
    names = [f"blue-2026112{day}T010203Z.baton" for day in (4, 6, 5, 3)]
    others = [
        "blue-20261101T010203Z.baton.old",
        "green-20261101T010203Z.baton",
        "blue-monday.baton",
    ]
    for name in (*names, *others):
        (tmp_path / name).touch()
    remove_old(tmp_path, "blue", 2)
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {*others, names[1], names[2]}
    variables = {"BATON_BACKUP_PASSPHRASE": PASSPHRASE}
    with pytest.raises(CommandError, match=r"--keep is for a directory of backups"):
        run("backup", str(tmp_path / "file"), "--keep", "2", **variables)
