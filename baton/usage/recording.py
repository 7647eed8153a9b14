"""What a process that records usage is made of: a spool, and what brings its records to sinks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from baton.settings import StartupError, UsageSettings
from baton.usage.sinks.jsonl import JsonlSink
from baton.usage.spool.delivery import Delivery
from baton.usage.spool.spool import Spool


@asynccontextmanager
async def recording(settings: UsageSettings) -> AsyncIterator[Spool | None]:
    """Open the spool and deliver from it meanwhile; None where usage is not recorded.

    Raises:
        StartupError: a setting is missing, or the spool cannot be opened.
    """
    if settings.spool_path is None:
        yield None
        return
    if settings.jsonl_path is None:
        raise StartupError(
            "usage.spool_path is set, and its records go nowhere: set usage.jsonl_path "
            "(BATON_USAGE_JSONL_PATH) too."
        )
    async with Spool(settings.spool_path, settings, [JsonlSink.name]) as spool:
        sink = JsonlSink(settings.jsonl_path, settings.jsonl_file_bytes)
        async with Delivery(spool, sink):
            yield spool
