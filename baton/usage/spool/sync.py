"""Forces the segments of a run to the disk, off the event loop."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from baton.process.io_thread import IoThread
from baton.telemetry.logs import get_logger
from baton.usage.spool.run import START, Position, Run

log = get_logger(__name__)


class SegmentSync:
    """Makes what is written survive the end of the machine: after a while, or when asked.

    Lives on the event loop, and blocks on `io`.

    Args:
        run: whose segments they are.
        io: the thread that reads them.
        seconds: what is written is forced to the disk after so long; 0: whoever writes does that.
    """

    def __init__(self, run: Run, io: IoThread, seconds: float) -> None:
        self._run = run
        self._io = io
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._written = self._synced = START
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def note_written(self, position: Position) -> None:
        """Note up to where whole lines are written."""
        self._written = position
        if not self._seconds:
            self._synced = position
        elif self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(self._seconds, self._sync_soon)

    async def sync(self) -> Position:
        """Force what is written to the disk; return up to where that is done.

        Raises:
            OSError: it is not known to be there.
        """
        until, since = self._written, self._synced
        if until > since:
            await self._io.call(partial(self._sync_segments, since.segment, until.segment))
            self._on_synced(until)
        return self._synced

    def stop(self) -> None:
        """Force nothing more unasked."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _sync_soon(self) -> None:
        self._timer = None
        self._io.submit(partial(self._sync_on_thread, self._synced, self._written))

    def _sync_on_thread(self, since: Position, until: Position) -> Callable[[], None]:
        try:
            self._sync_segments(since.segment, until.segment)
        except OSError as error:
            return partial(log.error, "usage.spool.not_synced", error=error.strerror)
        return partial(self._on_synced, until)

    def _on_synced(self, until: Position) -> None:
        self._synced = max(self._synced, until)

    def _sync_segments(self, first: int, last: int) -> None:
        """Force segments to the disk, and the names of new ones; on the thread."""
        for segment in range(max(1, first), last + 1):
            with suppress(FileNotFoundError):  # all sinks have it
                _fsync(self._run.path(segment))
        _fsync(self._run.directory)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
