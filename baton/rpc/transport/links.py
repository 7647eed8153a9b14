"""What a process's connections to others of its cluster go by."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from baton.rpc.tls.mutual import MutualTls, mutual_tls
from baton.rpc.transport import liveness
from baton.settings import ProcessSettings


@asynccontextmanager
async def links(
    settings: ProcessSettings, roles: Collection[str]
) -> AsyncIterator[MutualTls | None]:
    """Have this task, and all that is started from it, go by a process's settings.

    By `liveness`, how soon one that is silent counts as gone, and by `tls`.

    Args:
        settings: of the process.
        roles: one of them must be the certificate's.

    Yields:
        What servers need of TLS; None where plain text is spoken.

    Raises:
        StartupError: as of `mutual_tls`.
    """
    liveness.use(settings.liveness)
    async with mutual_tls(settings.tls, roles) as tls:
        yield tls
