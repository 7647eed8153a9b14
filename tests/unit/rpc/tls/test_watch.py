"""Files that are replaced while a process runs: when they are taken, and what is said of them."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from baton.cli.admin.certs.authority import Authority
from baton.rpc.tls import watch
from baton.rpc.tls.files import CertificateFiles
from baton.rpc.tls.watch import CertificateWatch
from baton.settings import StartupError
from baton.telemetry import metrics
from bench.harness.metrics import parse_metrics
from tests.support.tls.roles import write
from tests.support.wait import eventually

AUTHORITY = Authority.new("one", 3650)
FAILED = 'baton_tls_reloads_total{certificate="test",result="failed"}'
LOOK_SECONDS = 0.01
THEN = 1_700_000_000_000_000_000


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that are logged."""
    events: list[str] = []

    class Log:
        def warning(self, event: str, **_: object) -> None:
            events.append(event)

        error = info = warning

    monkeypatch.setattr(watch, "log", Log())
    return events


def issue(directory: Path, days: float = 1) -> CertificateFiles:
    """Write a new certificate, of another time than those before."""
    write(directory, AUTHORITY.issue(["router.baton"], days), AUTHORITY)
    cert, key, ca = (directory / name for name in ("tls.crt", "tls.key", "ca.crt"))
    os.utime(cert, ns=(time.time_ns(), time.time_ns()))
    return CertificateFiles("tls.", cert, key, ca)


def failed() -> float:
    return parse_metrics(metrics.render()[0].decode()).get(FAILED, 0.0)


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path) -> None:
    files, changes = issue(tmp_path), 0

    def make() -> object:
        nonlocal changes
        if changes:
            changes -= 1
            os.utime(files.key, ns=(THEN, THEN))
        return object()

    made = CertificateWatch("test", files, make)
    before = made.current
    issue(tmp_path)
    changes = 1
    for _ in range(3):  # read at the second, which is not what is there at the third
        made.look()
        assert made.current is before
    made.look()
    assert made.current is not before
    assert not changes


def test_files_that_are_gone_are_said_once_and_are_no_failed_reload(
    tmp_path: Path, said: list[str]
) -> None:
    files = issue(tmp_path)
    made = CertificateWatch("test", files, object)
    before, count = made.current, failed()
    files.key.unlink()
    for _ in range(3):
        made.look()
    assert said == ["tls.files.missing"]
    assert failed() == count
    assert made.current is before
    issue(tmp_path)
    for _ in range(2):
        made.look()
    assert said[1:] == ["tls.reload.done"]
    assert made.current is not before


def test_half_of_a_write_is_not_taken_by_whoever_reads_it(tmp_path: Path, said: list[str]) -> None:
    files = issue(tmp_path)
    made = CertificateWatch("test", files, object)
    before, count = made.current, failed()
    files.key.write_bytes(files.key.read_bytes()[:40])
    for _ in range(3):
        made.look()
    assert said == ["tls.reload.failed"]
    assert failed() == count + 1
    assert made.current is before


def test_what_was_replaced_is_warned_of_no_more(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    made = CertificateWatch("test", issue(tmp_path), object)
    monkeypatch.setattr(watch.time, "time", lambda: now + 20 * 3600)
    made._remind()
    assert said == ["tls.certificate.expiring"]
    issue(tmp_path, days=30)
    for _ in range(2):
        made.look()
    assert said[1:] == ["tls.reload.done"]
    monkeypatch.setattr(watch.time, "time", lambda: now + 22 * 3600)
    made._remind()
    assert len(said) == 2


async def test_files_are_looked_at_and_ends_said_until_the_block_ends(
    tmp_path: Path, said: list[str]
) -> None:
    made = CertificateWatch("test", issue(tmp_path, days=0.0005), object)
    before = made.current
    async with made.running(LOOK_SECONDS):
        await eventually(lambda: "tls.certificate.expiring" in said)
        issue(tmp_path)
        await eventually(lambda: made.current is not before)
    assert "certificate-test" not in {task.get_name() for task in asyncio.all_tasks()}


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")
    os.utime(path, ns=(THEN, THEN))


def younger(path: Path) -> None:
    os.utime(path, ns=(THEN, THEN + 1))


def another(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(THEN, THEN))
    new.replace(path)


@pytest.mark.parametrize("part", ["cert", "key", "ca"])
@pytest.mark.parametrize("change", [longer, younger, another])
def test_every_change_of_each_file_is_seen(
    tmp_path: Path, part: str, change: Callable[[Path], None]
) -> None:
    files = issue(tmp_path)
    for _, path in files.all:
        os.utime(path, ns=(THEN, THEN))
    before = files.signature()
    assert files.signature() == before
    change(getattr(files, part))
    assert files.signature() != before


def test_authorities_that_are_none(tmp_path: Path) -> None:
    files = issue(tmp_path)
    assert files.ca is not None
    files.ca.write_text("nothing of the kind\n")
    with pytest.raises(StartupError, match=r"tls\.ca .*ca\.crt has no PEM certificate"):
        files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
