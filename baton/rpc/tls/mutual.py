"""TLS between processes of a cluster: both sides present certificates (`tls.cert`, `key`, `ca`).

Servers receive it explicitly; client connections use that of their process, as with liveness.
"""

import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar

from baton.rpc.tls.contexts import MutualContexts, mutual_contexts
from baton.rpc.tls.files import CertificateFiles, required
from baton.rpc.tls.identity import Peer, peer_of
from baton.rpc.tls.watch import CertificateWatch
from baton.settings import StartupError, TlsSettings
from baton.telemetry.scope import of_process


class MutualTls:
    """A process's certificate and the authorities that it trusts, as their files are now.

    Args:
        files: certificate, key and authorities.
        trust_domain: in which roles are named.
        roles: one of them must be in the certificate; empty: any.

    Raises:
        StartupError: the files cannot be used, or the certificate names another role.
    """

    def __init__(
        self, files: CertificateFiles, trust_domain: str, roles: Collection[str] = ()
    ) -> None:
        self._files = files
        self._trust_domain = trust_domain
        self._roles = frozenset(roles)
        self.watch: CertificateWatch[MutualContexts] = CertificateWatch(
            "internal", files, self._read
        )

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context of incoming connections made from now on."""
        return self.watch.current.server

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of outgoing connections made from now on."""
        return self.watch.current.client

    def caller(self, tls: ssl.SSLObject) -> Peer:
        """Return the identity of the other side of a connection."""
        return peer_of(tls, self._trust_domain)

    def _read(self) -> MutualContexts:
        contexts = mutual_contexts(self._files)
        own = self.caller(contexts.shown)
        if self._roles and not self._roles & own.roles:
            wanted = " or ".join(sorted(self._roles))
            example = f"{min(self._roles)}.{self._trust_domain}"
            raise StartupError(
                f"tls.cert {self._files.cert} is not the certificate of a {wanted} (it has {own}): "
                f"issue it with the DNS name {example} or the SPIFFE id spiffe://{self._trust_domain}/"
                f"{min(self._roles)}, or set BATON_TLS_TRUST_DOMAIN to its domain."
            )
        return contexts


_current: ContextVar[MutualTls | None] = of_process(ContextVar("baton_mutual_tls", default=None))

current = _current.get
"""Return the TLS of the process that this task belongs to; None: plain text."""


def use(tls: MutualTls | None) -> None:
    """Have this task, and all tasks started from it, use TLS inside the cluster."""
    _current.set(tls)


def read(settings: TlsSettings, roles: Collection[str] = ()) -> MutualTls | None:
    """Return the TLS that settings configure; None if no files are set.

    Raises:
        StartupError: not all files are set, they cannot be used, or they belong to another role.
    """
    cert, key, ca = settings.cert, settings.key, settings.ca
    if not required("tls.", cert=cert, key=key, ca=ca) or cert is None or key is None:
        return None
    return MutualTls(CertificateFiles("tls.", cert, key, ca), settings.trust_domain, roles)


@asynccontextmanager
async def mutual_tls(
    settings: TlsSettings, roles: Collection[str] = ()
) -> AsyncIterator[MutualTls | None]:
    """Have this task, and all tasks started from it, use TLS inside the cluster.

    Args:
        settings: paths of the files, and how often to check them.
        roles: one of them must be in the certificate; empty: any.

    Yields:
        TLS for servers; None if no files are set, for plain text.

    Raises:
        StartupError: not all files are set, they cannot be used, or they belong to another role.
    """
    tls = read(settings, roles)
    use(tls)
    if tls is None:
        yield None
        return
    async with tls.watch.running(settings.check_seconds):
        yield tls
