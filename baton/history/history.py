"""The history of a process: accepts ended requests on the event loop, and writes them off it."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from baton.history.kept import KeptRequest, line_of
from baton.history.metrics import BYTES, DROPPED, KEPT
from baton.history.segments import FoundRequests, SegmentFiles
from baton.process.io_thread import IoThread
from baton.settings import StartupError
from baton.telemetry.logs import get_logger

MAX_WAITING = 1000
"""Most requests that wait for the disk; further ones are dropped, and counted."""
_STOP_SECONDS = 1.0

log = get_logger(__name__)


class History:
    """Requests kept on disk, bounded by size and age. Lives on the event loop.

    Requests that arrive during a write are written together next. Nothing waits for the disk.

    Args:
        path: the directory; processes of a machine may share it.
        max_bytes: most bytes on disk.
        max_seconds: age after which requests are deleted.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        max_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._files = SegmentFiles(path, max_bytes, max_seconds, clock)
        self._thread: IoThread
        self._waiting: list[KeptRequest] = []
        self._writing = False
        self._failing = False

    async def __aenter__(self) -> "History":
        self._thread = IoThread("history")
        try:
            size = await self._thread.call(self._files.open)
        except OSError as error:
            await self._thread.stop(_STOP_SECONDS)
            raise StartupError(
                f"Requests cannot be kept in {self._path}: {error.strerror or error}. Set "
                "history.path (BATON_HISTORY_PATH) to a directory that this process can write to."
            ) from error
        BYTES.set(size)
        log.info("router.history.opened", path=str(self._path), bytes=size)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                while self._writing:
                    await self._thread.call(_nothing)
        self._thread.submit(self._closing)
        await self._thread.stop(_STOP_SECONDS)

    def keep(self, kept: KeptRequest) -> None:
        """Keep a request; it is dropped while too many wait for the disk."""
        if len(self._waiting) >= MAX_WAITING:
            DROPPED.inc()
            return
        self._waiting.append(kept)
        self._write()

    async def find(self, request_id: str) -> FoundRequests:
        """Return the kept requests with an id; those of the last moment may be missing.

        Raises:
            OSError: the disk cannot be read.
        """
        return await self._thread.call(partial(self._files.find, request_id))

    def _write(self) -> None:
        if self._waiting and not self._writing:
            self._writing = True
            kept, self._waiting = self._waiting, []
            self._thread.submit(partial(self._write_on_thread, kept))

    def _write_on_thread(self, kept: list[KeptRequest]) -> Callable[[], None]:
        by_kind: dict[str, list[bytes]] = {}
        for one in kept:
            by_kind.setdefault(one.kind.value, []).append(line_of(one))
        size = 0
        try:
            for kind, lines in by_kind.items():
                size = self._files.append(kind, lines)
        except OSError as error:
            return partial(self._failed, len(kept), error)
        return partial(self._written, size, {kind: len(lines) for kind, lines in by_kind.items()})

    def _written(self, size: int, counts: dict[str, int]) -> None:
        self._writing = self._failing = False
        BYTES.set(size)
        for kind, count in counts.items():
            KEPT.labels(kind).inc(count)
        self._write()

    def _failed(self, count: int, error: OSError) -> None:
        self._writing = False
        DROPPED.inc(count)
        if not self._failing:
            self._failing = True
            log.error(
                "router.history.not_written",
                error=error.strerror or str(error),
                requests=count,
                setting="history.path",
            )
        self._write()

    def _closing(self) -> Callable[[], None]:
        self._files.close()
        return _nothing


def _nothing() -> None:
    """Do nothing: what went before is done."""
