"""TLS towards etcd: the process's certificate, or one that is for etcd alone."""

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
"""Return what a command shows to etcd; None: it speaks plain text."""


def use(certificate: EtcdCertificate | None) -> None:
    """Have this command show a certificate to etcd."""
    _current.set(certificate)


def read(settings: EtcdSettings, tls: TlsSettings) -> EtcdCertificate | None:
    """Return what is shown to etcd, and whom etcd must be vouched for by; None: plain text.

    That is `etcd.cert`, `etcd.key` and `etcd.ca` where they are set, else those of `tls`.

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
    """Be connected to a process's etcd.

    Raises:
        StartupError: files of certificates cannot be used.
    """
    certificate = read(settings, tls)
    if certificate is None:
        if tls.cert is not None:
            log.warning("etcd.plaintext", setting="etcd.plaintext")
        async with Etcd(settings.endpoints, settings.timeout_seconds) as etcd:
            yield etcd
        return
    async with (
        certificate.running(tls.check_seconds),
        Etcd(settings.endpoints, settings.timeout_seconds, certificate) as etcd,
    ):
        yield etcd


def _credentials(files: CertificateFiles) -> grpc.ChannelCredentials:
    files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # says what is wrong with them
    cert, key, ca = (path.read_bytes() for _, path in files.all)
    return grpc.ssl_channel_credentials(ca, key, cert)
