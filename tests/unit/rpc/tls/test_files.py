"""Files of certificates: what is refused at the start, and what is taken while a process runs."""

import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import NameOID

from baton.cli.admin.certs.authority import Authority
from baton.rpc.tls import watch
from baton.rpc.tls.contexts import HTTP2, public_context
from baton.rpc.tls.expiry import Life, read_lives
from baton.rpc.tls.files import CertificateFiles
from baton.rpc.tls.mutual import MutualTls, read
from baton.settings import StartupError, TlsSettings
from baton.telemetry import metrics
from bench.harness.metrics import parse_metrics
from tests.support.tls.roles import role, settings_in, write

AUTHORITY, OTHER = Authority.new("one", 1), Authority.new("another", 1)
ROUTER = AUTHORITY.issue(["router.baton"], 1)


def value(name: str) -> float:
    return parse_metrics(metrics.render()[0].decode()).get(name, 0.0)


@pytest.fixture
def tls(tmp_path: Path) -> MutualTls:
    made = read(write(tmp_path, ROUTER, AUTHORITY), ["router"])
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": None}, ("without tls.key:", "BATON_TLS_KEY", "--tls-key")),
        (
            {"ca": None, "key": None},
            ("without tls.key and tls.ca:", "BATON_TLS_CA", "or unset all"),
        ),
        ({"ca": Path("/none.pem")}, ("tls.ca /none.pem", "No such file", "authorities")),
    ],
)
def test_all_three_or_none(tmp_path: Path, change: dict[str, Any], words: tuple[str, ...]) -> None:
    settings = role(tmp_path, AUTHORITY, "router").model_copy(update=change)
    with pytest.raises(StartupError) as caught:
        read(settings, ["router"])
    assert all(word in str(caught.value) for word in words), caught.value
    assert read(TlsSettings()) is None


def test_a_role_of_another_trust_domain(tmp_path: Path) -> None:
    settings = write(tmp_path, AUTHORITY.issue(["router.prod"], 1), AUTHORITY, trust_domain="prod")
    assert read(settings, ["router"]) is not None


def test_what_clients_may_negotiate(tmp_path: Path) -> None:
    """RFC 9113, section 9.2: no renegotiation, and of TLS 1.2 what appendix A does not prohibit."""
    write(tmp_path, ROUTER, AUTHORITY)
    files = CertificateFiles("public.tls_", tmp_path / "tls.crt", tmp_path / "tls.key")
    context = public_context(files, HTTP2)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    old = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    assert old
    assert all("GCM" in name or "CHACHA20" in name for name in old)
    assert all(name.startswith("ECDHE-") for name in old)


def test_certificates_that_others_would_refuse(tmp_path: Path) -> None:
    expired = AUTHORITY.issue(["router.baton"], -1, begins=timedelta(days=-2))
    for issued, words in (
        (expired, "certificate has expired"),
        (OTHER.issue(["router.baton"], 1), "unable to get local issuer certificate"),
        (AUTHORITY.issue(["decode.baton"], 1), "is not the certificate of a router"),
        (AUTHORITY.issue(["router.other"], 1), "BATON_TLS_TRUST_DOMAIN"),
    ):
        with pytest.raises(StartupError, match=words):
            read(write(tmp_path, issued, AUTHORITY), ["router"])
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.cert[:-30])
    with pytest.raises(StartupError, match=r"tls\.ca .* ends within"):
        read(settings_in(tmp_path))


def serial(context: ssl.SSLContext) -> int:
    """Return how many authorities a context trusts."""
    return len(context.get_ca_certs())


def test_new_files_are_taken_at_the_second_look(tls: MutualTls, tmp_path: Path) -> None:
    before, loaded = tls.server_context, value(LOADED)
    tls.watch.look()
    assert tls.server_context is before
    write(tmp_path, AUTHORITY.issue(["router.baton"], 2), OTHER, AUTHORITY)
    tls.watch.look()
    assert tls.server_context is before  # it may be in the middle of a write
    tls.watch.look()
    assert tls.server_context is not before
    assert serial(tls.client_context) == 2
    assert value(LOADED) == loaded + 1
    assert value(EXPIRY) == pytest.approx(time.time() + 2 * 86400, abs=60)
    after = tls.server_context
    tls.watch.look()
    assert tls.server_context is after


LOADED = 'baton_tls_reloads_total{certificate="internal",result="loaded"}'
FAILED = 'baton_tls_reloads_total{certificate="internal",result="failed"}'
CA_EXPIRY = 'baton_tls_ca_expiry_timestamp_seconds{certificate="internal"}'
EXPIRY = 'baton_tls_certificate_expiry_timestamp_seconds{certificate="internal"}'


def test_files_that_cannot_be_used_leave_those_before(tls: MutualTls, tmp_path: Path) -> None:
    before, failed = tls.server_context, value(FAILED)
    fresh = AUTHORITY.issue(["router.baton"], 1)
    (tmp_path / "tls.crt").write_bytes(fresh.cert)  # its key is not there yet
    for _ in range(4):
        tls.watch.look()
    assert tls.server_context is before
    assert value(FAILED) == failed + 1  # said once
    (tmp_path / "tls.key").write_bytes(fresh.key[:40])
    for _ in range(2):
        tls.watch.look()
    (tmp_path / "tls.key").unlink()
    for _ in range(2):
        tls.watch.look()
    assert tls.server_context is before
    (tmp_path / "tls.key").write_bytes(fresh.key)
    for _ in range(2):
        tls.watch.look()
    assert tls.server_context is not before


def test_a_link_that_is_pointed_elsewhere_is_seen(tmp_path: Path) -> None:
    """As a kubelet replaces a mounted secret: all files at once, behind one link."""
    for name, issued in (("..1", ROUTER), ("..2", AUTHORITY.issue(["router.baton"], 1))):
        write(tmp_path / name, issued, AUTHORITY)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    tls = read(settings_in(tmp_path))
    assert tls is not None
    before = tls.server_context
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    for _ in range(2):
        tls.watch.look()
    assert tls.server_context is not before


def files_in(settings: TlsSettings) -> CertificateFiles:
    assert settings.cert is not None
    assert settings.key is not None
    return CertificateFiles("tls.", settings.cert, settings.key, settings.ca)


def ends_in(days: float) -> Any:
    """Within an hour: the authority of all tests here is as old as their collection."""
    return pytest.approx(time.time() + days * 86400, abs=3600)


def test_the_authority_that_counts_is_the_one_that_signed(tls: MutualTls, tmp_path: Path) -> None:
    assert value(CA_EXPIRY) == ends_in(1)
    old, new = Authority.new("old", 0.5), Authority.new("new", 30)
    for issuer, trusted, days in (
        (new, (old, new), 30),  # the old one is trusted and no longer used
        (old, (old, new), 0.5),
    ):
        write(tmp_path, issuer.issue(["router.baton"], 0.2), *trusted)
        for _ in range(2):
            tls.watch.look()
        assert value(CA_EXPIRY) == ends_in(days)
    other = write(tmp_path / "client", new.issue(["etcd"], 2), old, AUTHORITY)
    own, authority = read_lives(files_in(other))
    assert own.ends == ends_in(2)
    assert authority is not None
    assert authority.ends == ends_in(1)  # none of them signed it: the last to end


def test_one_between_the_certificate_and_its_authority_counts_too(tmp_path: Path) -> None:
    root, between = Authority.new("root", 30), Authority.new("between", 300)
    now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "between")])
    signed = (
        x509.CertificateBuilder(x509.load_pem_x509_certificate(root.cert).subject, name)
        .public_key(x509.load_pem_x509_certificate(between.cert).public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=3))
        .sign(load_pem_private_key(root.key, None), hashes.SHA256())
    )
    issued = between.issue(["router.baton"], 1)
    chain = replace(issued, cert=issued.cert + signed.public_bytes(Encoding.PEM))
    _, authority = read_lives(files_in(write(tmp_path, chain, root)))
    assert authority is not None
    assert authority.ends == ends_in(3)


@pytest.mark.parametrize(("days", "warned_days"), [(1, 0.2), (90, 18), (3650, 30)])
def test_when_an_end_is_first_warned_of(days: float, warned_days: float) -> None:
    life = Life(0.0, days * 86400, Path("a.crt"))
    assert life.ends - life.warn_at == pytest.approx(warned_days * 86400)


@pytest.mark.parametrize(
    ("what", "own_days", "authority_days"), [("certificate", 1, 3650), ("ca", 30, 1)]
)
def test_what_ends_soon_is_said_once_an_hour(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    own_days: float,
    authority_days: float,
) -> None:
    said: list[str] = []

    class Log:
        def warning(self, event: str, **_: object) -> None:
            said.append(event)

        error = warning

    authority = Authority.new("one", authority_days)
    tls = read(write(tmp_path, authority.issue(["router.baton"], own_days), authority))
    assert tls is not None
    now = time.time()
    monkeypatch.setattr(watch, "log", Log())
    for hours, expected in (
        (1, []),
        (20, [f"tls.{what}.expiring"]),
        (20.5, []),
        (21.1, [f"tls.{what}.expiring"]),
        (25, [f"tls.{what}.expired"]),
    ):
        monkeypatch.setattr(watch.time, "time", lambda hours=hours: now + hours * 3600)
        said.clear()
        tls.watch._remind()
        assert said == expected, hours
