"""OpenSSL contexts: of servers for clients, and of both sides inside a cluster."""

import ssl
from dataclasses import dataclass
from typing import Protocol

from baton.rpc.tls.files import CertificateFiles
from baton.rpc.tls.identity import Peer
from baton.settings import StartupError

HTTP2 = "h2"
HTTP1 = "http/1.1"
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2 that RFC 9113, appendix A, does not prohibit. TLS 1.3 has no others."""


class ServerTls(Protocol):
    """What a server needs for TLS."""

    @property
    def server_context(self) -> ssl.SSLContext:
        """Return the context for new connections."""

    def caller(self, tls: ssl.SSLObject) -> Peer | None:
        """Return the identity of the peer; None: peers are not identified."""


@dataclass(frozen=True, slots=True)
class MutualContexts:
    """Contexts of one certificate, which both sides present."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    shown: ssl.SSLObject
    """Server end of a handshake between the two: it has the certificate as a peer sees it."""


def public_context(files: CertificateFiles, protocol: str) -> ssl.SSLContext:
    """Return the context of a server that serves TLS 1.2 and 1.3 to any client.

    Args:
        files: certificate and key.
        protocol: the protocol to offer (ALPN): `HTTP2` or `HTTP1`.

    Raises:
        StartupError: a file cannot be used, or they do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION  # RFC 9113, section 9.2.1
    context.set_alpn_protocols([protocol])
    files.load_into(context)
    return context


def mutual_contexts(files: CertificateFiles) -> MutualContexts:
    """Return contexts with which both sides present a certificate, over TLS 1.3.

    Raises:
        StartupError: a file cannot be used, they do not belong together, or the certificate is not
            currently valid, for both sides, and signed by the authorities.
    """
    server, client = (
        ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    client.check_hostname = False  # roles are names: see identity.py
    server.num_tickets = 0  # a resumed session presents no certificate
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols([HTTP2])
        files.load_into(context)
    try:
        shown = _shake_hands(server, client)
    except ssl.SSLCertVerificationError as error:
        cert, ca = (files.setting(part) for part in ("cert", "ca"))
        raise StartupError(
            f"Other processes would reject the certificate {cert} {files.cert}, by {ca} "
            f"{files.ca}: {error.verify_message}."
        ) from error
    return MutualContexts(server, client, shown)


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Return the server's end of a handshake in memory.

    Raises:
        SSLCertVerificationError: a side rejects the other's certificate.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_side=False)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    pending = [one, other]
    while pending:
        side = pending.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pending.append(side)
    return other
