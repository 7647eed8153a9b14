"""A stream's use of an adapter."""

from baton.worker.adapters.known import KnownAdapter
from baton.worker.adapters.resident import ResidentAdapters


class AdapterUse:
    """Keeps one adapter in memory between `begin` and `end`. Lives on the event loop.

    Args:
        adapter: the version that the stream began with.
        resident: the adapters in memory.
    """

    def __init__(self, adapter: KnownAdapter, resident: ResidentAdapters) -> None:
        self._adapter = adapter
        self._resident = resident
        self._begun = False

    async def begin(self) -> None:
        """Return once the adapter is in memory.

        Raises:
            BatonError, EngineFailedError: as of `ResidentAdapters.acquire`.
        """
        await self._resident.acquire(self._adapter)
        self._begun = True

    async def end(self) -> None:
        """Let the adapter go, if it is in use."""
        if self._begun:
            self._begun = False
            await self._resident.release(self._adapter)
