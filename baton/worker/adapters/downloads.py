"""Brings adapters' files to this machine, on threads of its own."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from baton.engine.lora.adapter import Adapter
from baton.engine.lora.limits import AdapterLimits
from baton.models.adapters.cache import AdapterCache, HeldFiles

_DOWNLOADS = 2
"""At once; a source that is slow delays only others that are downloaded."""


class AdapterDownloads:
    """Files of a worker's adapters. Lives on the event loop.

    Args:
        cache: of downloaded ones.
    """

    def __init__(self, cache: AdapterCache) -> None:
        self._cache = cache
        self._threads = ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="adapter-downloads")

    def close(self) -> None:
        """End downloads."""
        self._cache.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def fetch(self, location: str, limits: AdapterLimits) -> HeldFiles:
        """Return the files at a location; errors as `AdapterCache.fetch`."""
        if location.startswith("/"):
            return HeldFiles(Path(location))
        return await self._run(location, limits)

    async def hold(self, adapter: Adapter, limits: AdapterLimits) -> HeldFiles:
        """Return the files of an adapter that was checked; they are downloaded again if they had
        to make room.

        Raises:
            AdapterError: as of `AdapterCache.fetch`.
        """
        if not adapter.location:
            return HeldFiles(adapter.directory)
        return self._cache.hold(adapter.directory) or await self._run(adapter.location, limits)

    async def _run(self, location: str, limits: AdapterLimits) -> HeldFiles:
        download = self._threads.submit(self._cache.fetch, location, limits)
        try:
            return await asyncio.wrap_future(download)
        except asyncio.CancelledError:
            download.add_done_callback(_let_go)
            raise


def _let_go(download: Future[HeldFiles]) -> None:
    if not download.cancelled() and download.exception() is None:
        download.result().close()
