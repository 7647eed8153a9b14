"""`baton certs`: what it writes, and each step of replacing an authority."""

from io import StringIO
from pathlib import Path

import grpc
import pytest
import yaml
from rich.console import Console

from baton.cli.admin.certs.command import certs
from baton.cli.admin.certs.directory import CertificateDirectory
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import CertsOptions
from baton.rpc.tls.identity import ROLES
from baton.rpc.tls.mutual import read
from baton.settings import TlsSettings
from bench.harness import ROOT
from tests.support.clock import within


def run(path: Path, **options: bool) -> str:
    shown = StringIO()
    certs(CertsOptions(path, **options), Console(file=shown, width=200, soft_wrap=True))
    return shown.getvalue()


def settings(path: Path, role: str) -> TlsSettings:
    own = path / role
    return TlsSettings(cert=own / "tls.crt", key=own / "tls.key", ca=own / "ca.crt")


def test_every_role_gets_a_certificate_that_the_others_take(tmp_path: Path) -> None:
    path = tmp_path / "certs"
    text = run(path)
    for role in ROLES:
        assert read(settings(path, role), [role]) is not None
        assert f"kubectl create secret generic {role}-tls --from-file={path / role}" in text
        assert (path / role / "tls.key").stat().st_mode & 0o777 == 0o600
    assert (path / "ca.key").stat().st_mode & 0o777 == 0o600
    assert {file.name for file in (path / "etcd").iterdir()} == {"tls.crt", "tls.key", "ca.crt"}


async def test_etcd_is_called_as_in_the_manifests(tmp_path: Path) -> None:
    """grpcio decides whether a certificate has a name, which is stricter than others."""
    run(tmp_path)
    own = tmp_path / "etcd"
    ca, key, cert = ((own / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    await server.start()
    base = yaml.safe_load((ROOT / "k8s/base/kustomization.yaml").read_text())
    literals = dict(one.split("=", 1) for one in base["configMapGenerator"][0]["literals"])
    hosts = [one.split(":")[0] for one in literals["BATON_ETCD_ENDPOINTS"].split(",")]
    try:
        for host in (*hosts, "localhost", "etcd-3.etcd.baton.svc"):
            name = [("grpc.ssl_target_name_override", host)]
            credentials = grpc.ssl_channel_credentials(ca)
            channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, name)
            async with channel, within(10):
                await channel.channel_ready()
    finally:
        await server.stop(0)


def test_an_authority_is_replaced_in_three_steps(tmp_path: Path) -> None:
    run(tmp_path)
    first = (tmp_path / "router" / "tls.crt").read_bytes()
    [old] = CertificateDirectory(tmp_path).authorities()
    assert "baton certs" in run(tmp_path, new_ca=True)
    assert (tmp_path / "router" / "tls.crt").read_bytes() == first
    new, kept = CertificateDirectory(tmp_path).authorities()
    assert kept == old
    run(tmp_path)
    assert (tmp_path / "router" / "tls.crt").read_bytes() != first
    assert read(settings(tmp_path, "router"), ["router"]) is not None
    run(tmp_path, drop_old_cas=True)
    assert (tmp_path / "router" / "ca.crt").read_bytes() == new
    assert read(settings(tmp_path, "router"), ["router"]) is not None


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has no authority"):
        run(tmp_path, drop_old_cas=True)
    with pytest.raises(CommandError, match="set only one of them"):
        run(tmp_path, drop_old_cas=True, new_ca=True)
    run(tmp_path)
    (tmp_path / "ca.key").write_text("nothing")
    with pytest.raises(CommandError, match="cannot be used"):
        run(tmp_path)
    with pytest.raises(CommandError, match="File exists"):
        run(tmp_path / "ca.crt")
