"""TLS towards clients: they see a certificate and show none."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from baton.rpc.tls.contexts import HTTP1, HTTP2, public_context
from baton.rpc.tls.files import CertificateFiles, required
from baton.rpc.tls.watch import CertificateWatch
from baton.settings import PublicSettings


class PublicTls:
    """The certificate that clients see, as its files are now.

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
        """For a server that keeps the one it was given: each handshake takes the newest."""
        self.http_context.sni_callback = self._take_newest

    @property
    def server_context(self) -> ssl.SSLContext:
        """Of gRPC's new connections."""
        return self.watch.current[0]

    def caller(self, tls: ssl.SSLObject) -> None:  # noqa: ARG002 - the same for all
        """Return None: clients are who they say elsewhere."""
        return

    def _take_newest(self, tls: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:  # noqa: ARG002
        tls.context = self.watch.current[1]


@asynccontextmanager
async def public_tls(
    settings: PublicSettings, check_seconds: float
) -> AsyncIterator[PublicTls | None]:
    """Serve clients over TLS, with files that are looked at every so often.

    Yields:
        What servers need; None where no files are set, and plain text is served.

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
