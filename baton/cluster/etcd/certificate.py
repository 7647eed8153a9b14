"""TLS to etcd: with the process's certificate, or with one used only for etcd."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial

import grpc

from baton.cluster.etcd.client import Etcd
from baton.rpc.tls.files import CertificateFiles, required
from baton.rpc.tls.watch import CertificateWatch
from baton.settings import EtcdSettings, TlsSettings
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

EtcdCertificate = CertificateWatch[grpc.ChannelCredentials]


_current: ContextVar[EtcdCertificate | None] = ContextVar("baton_etcd_certificate", default=None)

current = _current.get
"""Return the certificate that this command presents to etcd; None: plain text."""


def use(certificate: EtcdCertificate | None) -> None:
    """Have this command present a certificate to etcd."""
    _current.set(certificate)


def read(settings: EtcdSettings, tls: TlsSettings) -> EtcdCertificate | None:
    """Return the certificate to present to etcd and the authorities to verify it with; None: plain
    text.

    These are `etcd.cert`, `etcd.key` and `etcd.ca` where they are set, else those of `tls`.

    Raises:
        StartupError: not all three files are set, or they cannot be used.
    """
    if settings.plaintext:
        return None
    for prefix, named in (("etcd.", settings), ("tls.", tls)):
        cert, key, ca = named.cert, named.key, named.ca
        if required(prefix, cert=cert, key=key, ca=ca) and cert is not None and key is not None:
            files = CertificateFiles(prefix, cert, key, ca)
            return CertificateWatch("etcd", files, partial(_credentials, files))
    return None


@asynccontextmanager
async def connect(settings: EtcdSettings, tls: TlsSettings) -> AsyncIterator[Etcd]:
    """Connect to the etcd of a process; close the connection on exit.

    Raises:
        StartupError: files of certificates cannot be used.
    """
    certificate = read(settings, tls)
    if certificate is None:
        if tls.cert is not None:
            log.warning("etcd.connection.unencrypted", setting="etcd.plaintext")
        async with Etcd(settings.endpoints, settings.timeout_seconds) as etcd:
            yield etcd
        return
    async with (
        certificate.running(tls.check_seconds),
        Etcd(settings.endpoints, settings.timeout_seconds, certificate) as etcd,
    ):
        yield etcd


def _credentials(files: CertificateFiles) -> grpc.ChannelCredentials:
    files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # its error names the problem
    cert, key, ca = (path.read_bytes() for _, path in files.all)
    return grpc.ssl_channel_credentials(ca, key, cert)
