"""etcd that wants a certificate of its clients."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baton.cli.admin.certs.authority import Authority
from baton.cli.shared.options import CertificateOptions
from baton.cluster.etcd import certificate as etcd_certificate
from baton.cluster.etcd.certificate import EtcdCertificate, connect, read
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.cluster.etcd.local import find_binary
from baton.host.ports import held_port
from baton.settings import EtcdSettings, StartupError, TlsSettings
from tests.support.clock import within
from tests.support.tls.roles import role, write
from tests.support.wait import eventually

AUTHORITY, OTHER = Authority.new("etcd", 1), Authority.new("another", 1)


@contextlib.asynccontextmanager
async def strict_etcd(path: Path) -> AsyncIterator[EtcdSettings]:
    """Run an etcd that serves those alone who show a certificate."""
    files = write(path / "own", AUTHORITY.issue(["127.0.0.1"], 1), AUTHORITY)
    with held_port() as client_port, held_port() as peer_port:
        client, peer = f"127.0.0.1:{client_port}", f"127.0.0.1:{peer_port}"
        flags = {
            "data-dir": path / "data",
            "listen-client-urls": f"https://{client}",
            "advertise-client-urls": f"https://{client}",
            "listen-peer-urls": f"http://{peer}",
            "initial-advertise-peer-urls": f"http://{peer}",
            "initial-cluster": f"default=http://{peer}",
            "cert-file": files.cert,
            "key-file": files.key,
            "trusted-ca-file": files.ca,
            "client-cert-auth": "true",
            "unsafe-no-fsync": "true",
            "log-level": "fatal",
        }
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        process = await asyncio.create_subprocess_exec(find_binary(), *arguments)
        try:
            yield EtcdSettings(endpoints=(client,))
        finally:
            process.kill()
            await process.wait()


async def answers(etcd: Etcd) -> bool:
    try:
        await etcd.put("key", b"value")
    except EtcdError:
        return False
    return True


async def test_etcd_with_certificates_and_new_ones_of_another_authority(tmp_path: Path) -> None:
    files = role(tmp_path, AUTHORITY, "router", check_seconds=0.05)
    async with strict_etcd(tmp_path) as settings, connect(settings, files) as etcd, within(40):
        await eventually(lambda: answers(etcd))
        async with contextlib.aclosing(etcd.watch("key", 1)) as changes:
            assert not await anext(changes)
            await anext(changes)  # what was put
            certificate = etcd._channels._shown
            new = AUTHORITY.issue(["router.baton"], 1)
            write(tmp_path / "router", new, AUTHORITY, OTHER)
            await eventually(lambda: renewed(etcd, certificate))
            # The watch is on the channel of before, and goes on.
            await etcd.put("key", b"other")
            while (await anext(changes))[-1].value != b"other":
                pass
        for strange in (None, OTHER.issue(["router.baton"], 1)):
            other = TlsSettings()
            if strange is not None:
                other = write(tmp_path / "strange", strange, AUTHORITY)
            async with connect(settings, other) as stranger:
                assert not await answers(stranger)


async def renewed(etcd: Etcd, before: object) -> bool:
    assert await answers(etcd)
    return etcd._channels._shown is not before


def test_which_certificate_etcd_sees(tmp_path: Path) -> None:
    process = role(tmp_path, AUTHORITY, "router")
    own = write(tmp_path / "etcd", OTHER.issue(["client"], 1), OTHER)
    given = EtcdSettings(cert=own.cert, key=own.key, ca=own.ca)
    assert read(EtcdSettings(), TlsSettings()) is None
    assert read(EtcdSettings(plaintext=True), process) is None
    for settings, tls, files in (
        (EtcdSettings(), process, process),
        (given, process, own),
        (given, TlsSettings(), own),
    ):
        certificate = read(settings, tls)
        assert certificate is not None and certificate._files.cert == files.cert
    with pytest.raises(StartupError, match=r"without etcd\.key and etcd\.ca"):
        read(EtcdSettings(cert=own.cert), process)
    strange = write(tmp_path / "mixed", OTHER.issue(["client"], 1), OTHER)
    with pytest.raises(StartupError, match=r"etcd\.key .* does not match the certificate"):
        read(EtcdSettings(cert=own.cert, key=strange.key, ca=own.ca), process)


async def test_plain_text_beside_certificates_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class Log:
        def warning(self, event: str, **_: object) -> None:
            said.append(event)

    monkeypatch.setattr(etcd_certificate, "log", Log())
    process = role(tmp_path, AUTHORITY, "router")
    for settings, tls, expected in (
        (EtcdSettings(), TlsSettings(), []),
        (EtcdSettings(), process, []),
        (EtcdSettings(plaintext=True), process, ["etcd.connection.unencrypted"]),
    ):
        said.clear()
        async with connect(settings, tls):
            assert said == expected


async def test_commands_show_etcd_what_they_were_given(tmp_path: Path) -> None:
    files = role(tmp_path, AUTHORITY, "operator")
    options = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.ca}

    async def shown(**given: Any) -> EtcdCertificate | None:
        CertificateOptions(**given).show_certificates()
        return etcd_certificate.current()

    tasks = [asyncio.create_task(shown(**given)) for given in ({}, options)]
    plain, own = await asyncio.gather(*tasks)  # each in a context of its own
    assert plain is None
    assert own is not None and own._files.cert == files.cert
