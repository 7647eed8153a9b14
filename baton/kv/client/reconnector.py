"""Keep a client attached to its store, and reattach it when the store restarts."""

import asyncio
from collections.abc import Callable

from baton.kv.arena.file import MappedArena
from baton.kv.client.attach import StoreUnavailableError, attach
from baton.kv.client.connection import StoreConnection
from baton.process.background import start_background
from baton.rpc.timing.backoff import Backoff
from baton.settings import KvSettings
from baton.telemetry.logs import get_logger

FIRST_RETRY_SECONDS = 0.05
MAP_AGAIN_SECONDS = 0.1

log = get_logger(__name__)


class Reconnector:
    """Maintains the connection to a store.

    Owned by a KvStoreClient; an async context on the asyncio loop, in which one task attaches.

    Args:
        resolve: returns the current address of the store, `host:port`; None while there is none.
        client_id: this process's instance id.
        incarnation: this process's incarnation.
        settings: allowed transports, and timeouts of the store.
    """

    def __init__(
        self,
        resolve: Callable[[], str | None],
        client_id: str,
        incarnation: str,
        settings: KvSettings,
    ) -> None:
        self._resolve = resolve
        self._client_id = client_id
        self._incarnation = incarnation
        self._settings = settings
        self.connection: StoreConnection | None = None
        """Current connection; None while there is none. It may just have broken."""
        self._connected = asyncio.Condition()
        self._unavailable = "not attached yet"
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Reconnector":
        self._task = asyncio.create_task(self._run(), name="kv-client")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def connected(self) -> bool:
        return self.connection is not None and not self.connection.broken.is_set()

    def require(self) -> StoreConnection:
        """Return the connection.

        Raises:
            StoreUnavailableError: there is none.
        """
        if self.connection is None:
            raise StoreUnavailableError(self._unavailable)
        self.connection.check()
        return self.connection

    async def wait_connected(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a connection; return whether there is one."""
        try:
            async with asyncio.timeout(timeout), self._connected:
                await self._connected.wait_for(lambda: self.connected)
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, self._settings.retry_seconds)
        while True:
            address = self._resolve()
            if address is not None:
                try:
                    await self._stay_attached(address)
                    backoff.reset()
                except StoreUnavailableError as error:
                    self._unavailable = str(error)
                except Exception as error:
                    self._unavailable = f"cannot attach to the store at {address}: {error!r}"
                    log.exception("kv.store.attach_failed", address=address)
            await asyncio.sleep(backoff.next())

    async def _stay_attached(self, address: str) -> None:
        """Attach, and stay attached until the connection breaks."""
        attachment = await attach(address, self._client_id, self._incarnation, self._settings)
        connection = StoreConnection(attachment, self._settings.staging_bytes)
        mapping = None
        if connection.arena is not None:
            mapping = start_background(_map_memory(connection.arena), "kv-map-memory")
        try:
            self.connection = connection
            async with self._connected:
                self._connected.notify_all()
            log.info("kv.store.attached", peer=connection.store_id, transport=connection.transport)
            await connection.broken.wait()
            self._unavailable = connection.reason
            log.warning("kv.store.lost", peer=connection.store_id, reason=connection.reason)
        finally:
            self.connection = None
            if mapping is not None:
                mapping.cancel()
            await connection.aclose()


async def _map_memory(arena: MappedArena) -> None:
    """Map the arena's memory in the background, so that first copies cause no page fault."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, arena.populate_next):
        if arena.populated_bytes >= arena.touched_bytes:
            await asyncio.sleep(MAP_AGAIN_SECONDS)  # the store has not used the rest yet
