"""TLS for clients: the server presents a certificate, clients present none."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from baton.rpc.tls.contexts import HTTP1, HTTP2, public_context
from baton.rpc.tls.files import CertificateFiles, required
from baton.rpc.tls.watch import CertificateWatch
from baton.settings import PublicSettings


class PublicTls:
    """The certificate presented to clients, reloaded as its files change.

    Args:
        files: certificate and key.

    Raises:
        StartupError: they cannot be used.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self.watch = CertificateWatch(
            "public",
            files,
            lambda: (public_context(files, HTTP2), public_context(files, HTTP1)),
        )
        self.http_context = public_context(files, HTTP1)
        """For a server that keeps this context: each handshake uses the newest certificate."""
        self.http_context.sni_callback = self._take_newest

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context of new gRPC connections."""
        return self.watch.current[0]

    def caller(self, tls: ssl.SSLObject) -> None:  # noqa: ARG002 - the same for all
        """Return None: clients authenticate by other means."""
        return

    def _take_newest(self, tls: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:  # noqa: ARG002
        tls.context = self.watch.current[1]


@asynccontextmanager
async def public_tls(
    settings: PublicSettings, check_seconds: float
) -> AsyncIterator[PublicTls | None]:
    """Serve clients over TLS, with files that are checked periodically for changes.

    Yields:
        TLS for servers; None if no files are set, for plain text.

    Raises:
        StartupError: only one file is set, or they cannot be used.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if not required("public.tls_", cert=cert, key=key) or cert is None or key is None:
        yield None
        return
    tls = PublicTls(CertificateFiles("public.tls_", cert, key))
    async with tls.watch.running(check_seconds):
        yield tls
