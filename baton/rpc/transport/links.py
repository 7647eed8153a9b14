"""Settings of a process's connections to others of its cluster."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from baton.rpc.tls.mutual import MutualTls, mutual_tls
from baton.rpc.transport import liveness
from baton.settings import ProcessSettings


@asynccontextmanager
async def links(
    settings: ProcessSettings, roles: Collection[str]
) -> AsyncIterator[MutualTls | None]:
    """Have this task, and all tasks started from it, use a process's connection settings.

    These are `liveness`, which sets how soon a silent peer counts as gone, and `tls`.

    Args:
        settings: settings of the process.
        roles: one of them must be in the certificate.

    Yields:
        TLS for servers; None for plain text.

    Raises:
        StartupError: as of `mutual_tls`.
    """
    liveness.use(settings.liveness)
    async with mutual_tls(settings.tls, roles) as tls:
        yield tls
