"""Adapters in the engine's memory: loaded when needed; the one used longest ago makes room."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from baton.engine.base import Engine
from baton.engine.lora.adapter import Adapter
from baton.engine.lora.config import AdapterError
from baton.errors import BatonError, Reason
from baton.process.background import start_background
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.adapters.downloads import AdapterDownloads
from baton.worker.adapters.known import KnownAdapter
from baton.worker.engine_loop import EngineLoop

_NEWEST = 0.2
"""Weight of the newest load in their average."""

log = get_logger(__name__)


@dataclass(slots=True)
class _Slot:
    """An adapter that is in memory, or is being loaded."""

    digest: bytes
    ready: asyncio.Future[None]
    uses: int = 0
    dropped: bool = False
    """Whether it leaves memory with its last use."""


class ResidentAdapters:
    """Loads adapters into the engine, on a thread, while other sequences run.

    Lives on the event loop. At most as many adapters are in memory as the engine has slots; one
    that a stream uses is never removed. Streams that find all slots in use wait for one, for as
    long as their deadlines let them.

    Args:
        engine: whose methods run on the loop's thread, except `load_adapter`.
        engine_loop: of the engine.
        downloads: have adapters' files here.
    """

    def __init__(
        self, engine: Engine, engine_loop: EngineLoop, downloads: AdapterDownloads
    ) -> None:
        self._engine = engine
        self._loop = engine_loop
        self._downloads = downloads
        limits = engine.info.adapter_limits
        self._size = 0 if limits is None else limits.slots
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        """By the adapters' keys, the one used longest ago first."""
        self._freed = asyncio.Condition()
        self.load_seconds = 0.0
        """Average of recent loads; 0: there was none."""
        self.on_changed: Callable[[], None] = lambda: None
        """Called when other adapters are in memory."""
        self._tasks: set[asyncio.Task[None]] = set()
        # Of the process's niceness: whatever thread holds Python's lock, the engine's waits for it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="adapters")

    @property
    def thread(self) -> ThreadPoolExecutor:
        """The thread on which adapters are read."""
        return self._thread

    @property
    def digests(self) -> Sequence[bytes]:
        """Digests of the adapters that are in memory, or being loaded, sorted."""
        return sorted(slot.digest for slot in self._slots.values())

    @property
    def slots(self) -> int:
        """Most adapters in memory at once."""
        return self._size

    def close(self) -> None:
        """Stop the thread. No stream may be open."""
        for task in self._tasks:
            task.cancel()
        self._thread.shutdown(cancel_futures=True)

    async def acquire(self, adapter: KnownAdapter) -> None:
        """Return once an adapter is in memory, where it stays until `release`.

        Raises:
            BatonError: UNAVAILABLE: its files cannot be read, or are not those registered.
            EngineFailedError: the engine failed.
        """
        if adapter.adapter is None:
            return
        slot = self._slots.get(adapter.key)
        if slot is None:
            async with self._freed:
                await self._freed.wait_for(lambda: adapter.key in self._slots or self._make_room())
            slot = self._slots.get(adapter.key) or self._load(adapter)
        self._slots.move_to_end(adapter.key)
        slot.uses += 1
        try:
            await asyncio.shield(slot.ready)
        except BaseException:
            await self._unpin(adapter.key, slot)
            raise

    async def release(self, adapter: KnownAdapter) -> None:
        """End a use that `acquire` began."""
        if adapter.adapter is not None:
            await self._unpin(adapter.key, self._slots[adapter.key])

    async def drop(self, key: str) -> None:
        """Remove an adapter from memory, as soon as it is not in use."""
        slot = self._slots.get(key)
        if slot is not None:
            slot.dropped = True
            await self._leave(key, slot)

    async def _unpin(self, key: str, slot: _Slot) -> None:
        slot.uses -= 1
        await self._leave(key, slot)

    async def _leave(self, key: str, slot: _Slot) -> None:
        if slot.dropped and self._can_leave(slot) and self._slots.get(key) is slot:
            self._evict(key)
        async with self._freed:
            self._freed.notify_all()

    @staticmethod
    def _can_leave(slot: _Slot) -> bool:
        return not slot.uses and slot.ready.done()

    def _make_room(self) -> bool:
        """Return whether a slot is free, after removing what was used longest ago if necessary."""
        if len(self._slots) < self._size:
            return True
        for key, slot in self._slots.items():
            if self._can_leave(slot):
                self._evict(key)
                return True
        return False

    def _evict(self, key: str) -> None:
        del self._slots[key]
        self._loop.post(lambda engine: engine.remove_adapter(key))
        self._set_count()

    def _set_count(self) -> None:
        metrics.ADAPTERS.set(len(self._slots))
        self.on_changed()

    def _load(self, adapter: KnownAdapter) -> _Slot:
        slot = self._slots[adapter.key] = _Slot(
            adapter.digest, asyncio.get_running_loop().create_future()
        )
        slot.ready.add_done_callback(_retrieve)
        task = start_background(self._fill(adapter, slot), f"adapter {adapter.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return slot

    async def _fill(self, adapter: KnownAdapter, slot: _Slot) -> None:
        loop, files = asyncio.get_running_loop(), adapter.adapter
        assert files is not None  # others are not loaded
        began = loop.time()
        try:
            loaded = await self._read(files)
            await self._loop.call(lambda engine: engine.add_adapter(adapter.key, loaded))
        except BaseException as error:
            del self._slots[adapter.key]
            if isinstance(error, AdapterError):
                metrics.ADAPTER_FAILURES.inc()
                log.warning("worker.adapter.not_loaded", adapter=adapter.name, error=str(error))
                why = f"adapter {adapter.name!r} cannot be loaded: {error}"
                slot.ready.set_exception(BatonError(Reason.UNAVAILABLE, why, retry_after=1.0))
            elif isinstance(error, Exception):
                slot.ready.set_exception(error)
            else:
                slot.ready.cancel()
                raise
            return
        slot.ready.set_result(None)
        seconds = loop.time() - began
        metrics.ADAPTER_LOADS.inc()
        metrics.ADAPTER_LOAD_SECONDS.inc(seconds)
        weight = _NEWEST if self.load_seconds else 1.0
        self.load_seconds += weight * (seconds - self.load_seconds)
        self._set_count()
        log.info("worker.adapter.loaded", adapter=adapter.name, seconds=round(seconds, 4))
        await self._leave(adapter.key, slot)  # nothing may want it any more

    async def _read(self, adapter: Adapter) -> Any:
        limits = self._engine.info.adapter_limits
        assert limits is not None  # none is known
        loop = asyncio.get_running_loop()
        with await self._downloads.hold(adapter, limits) as held:
            files = replace(adapter, directory=held.directory)
            return await loop.run_in_executor(self._thread, self._engine.load_adapter, files)


def _retrieve(ready: asyncio.Future[None]) -> None:
    """Mark an error as seen: every stream that waited may have left."""
    if not ready.cancelled():
        ready.exception()
