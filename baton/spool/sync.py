"""Syncs the segments of a run to the disk, off the event loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from baton.host.flush import flush_to_disk
from baton.process.io_thread import IoThread
from baton.spool.run import START, Position, Run
from baton.telemetry.logs import get_logger

log = get_logger(__name__)


class SegmentSync:
    """Makes written lines survive a crash of the machine: periodically, or on request.

    Lives on the event loop, and blocks on `io`.

    Args:
        run: the run of the segments.
        io: the thread that reads the segments.
        seconds: time after which written lines are synced; 0: the writer syncs.
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
        """Record the end of the complete lines written."""
        self._written = position
        if not self._seconds:
            self._synced = position
        elif self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(self._seconds, self._sync_soon)

    async def sync(self) -> Position:
        """Sync written lines to the disk; return the synced position.

        Raises:
            OSError: it is unknown whether they are on the disk.
        """
        until, since = self._written, self._synced
        if until > since:
            await self._io.call(partial(self._sync_segments, since.segment, until.segment))
            self._on_synced(until)
        return self._synced

    def stop(self) -> None:
        """Stop periodic syncs."""
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
            return partial(log.error, "spool.log.not_synced", error=error.strerror)
        return partial(self._on_synced, until)

    def _on_synced(self, until: Position) -> None:
        self._synced = max(self._synced, until)

    def _sync_segments(self, first: int, last: int) -> None:
        """Sync segments to the disk, and the names of new ones; on the thread."""
        for segment in range(max(1, first), last + 1):
            with suppress(FileNotFoundError):  # all sinks have acknowledged it
                flush_to_disk(self._run.path(segment))
        flush_to_disk(self._run.directory)
