"""The spool of one process: accepts records on the event loop, and writes them off it."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from baton.process.background import start_background
from baton.process.io_thread import IoThread
from baton.settings import StartupError
from baton.spool.frames import BEGIN, END
from baton.spool.kind import SpoolKind, SpoolLimits, SpoolRecord
from baton.spool.run import START, Position, Run, claim, claim_left
from baton.spool.sync import SegmentSync
from baton.spool.writer import Entry, SegmentWriter
from baton.telemetry.logs import get_logger

REQUEST_BYTES = 3072
"""Space reserved for a running request: both of its lines."""
_SEGMENT_BYTES = 8 * 1024 * 1024
_SEGMENTS = 8
"""The spool has at least this many segments, so that space is freed in small pieces."""
_GATHER_SECONDS = 0.01
"""How long a line waits for others if no response depends on it."""
_RETRY_SECONDS = 1.0
LOOK_SECONDS = 60.0
"""Approximate interval between searches for abandoned runs."""
_STOP_SECONDS = 2.0

log = get_logger(__name__)


class Spool:
    """A log of records on a local disk, bounded by `spool_bytes`.

    Lives on the event loop. Lines that arrive during a write are combined in the next one; they are
    bounded by the running requests, for which space is reserved. A slow or failing disk delays no
    request by more than `stall_seconds`: records then wait in memory, and unwritten ones are
    lost if the process is killed.

    Args:
        path: the spool's directory; other processes may use it too.
        settings: its limits.
        sinks: names of the sinks of the records.
        kind: what it is for.
    """

    def __init__(
        self, path: Path, settings: SpoolLimits, sinks: Sequence[str], kind: SpoolKind
    ) -> None:
        self.kind = kind
        self._metrics = kind.metrics
        self._path = path
        self._settings = settings
        self._sinks = sinks
        self.run: Run
        """The run that this process writes."""
        self.left: list[Run]
        """Runs of processes that have ended, including those that ended since the start. Only
        grows."""
        self.position = START
        """End of the complete lines written."""
        self._writer: SegmentWriter
        self._loop = asyncio.get_running_loop()
        self._queue: list[Entry] = []
        self._waiting: list[Callable[[], None]] = []
        """Called once queued lines are written."""
        self._released: list[Callable[[], None]] = []
        """Called once the lines of the current write are written."""
        self._writing = self._scheduled = self._stalled = self._was_full = False
        self._closing = False
        self._bytes = 0
        """Bytes of all runs."""
        self._running = 0
        """Requests whose end is not written."""
        self._reserved = 0
        """Bytes for other records to come."""
        self.grown = asyncio.Event()
        """Set when there is more to deliver."""
        self._write_began = 0.0
        self._stall_timer: asyncio.TimerHandle | None = None
        """One timer for all writes, which checks the duration of the current write."""
        self._retry_timer: asyncio.TimerHandle | None = None
        self._gather_timer: asyncio.TimerHandle | None = None
        self._sync: SegmentSync
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Spool":
        self._threads = [IoThread(f"{self.kind.name}-write"), IoThread(f"{self.kind.name}-read")]
        write, self.io = self._threads
        """Threads for writing, and for other blocking calls: reading, syncing, removing."""
        self._write_thread = write
        try:
            self.run, self.left = await write.call(partial(claim, self._path, self._sinks))
            self._bytes = await write.call(self._left_bytes)
        except OSError as error:
            await self._stop_threads()
            raise StartupError(
                f"Records cannot be kept in {self._path}: {error.strerror or error}. Set "
                f"{self.kind.setting} to a directory that this process can write to."
            ) from error
        segment_bytes = min(_SEGMENT_BYTES, self._settings.spool_bytes // _SEGMENTS)
        seconds = self._settings.fsync_seconds
        self._writer = SegmentWriter(self.run, segment_bytes, sync=not seconds)
        self._sync = SegmentSync(self.run, self.io, seconds)
        self._metrics.capacity_bytes.set(self._settings.spool_bytes)
        self._measure()
        self._looking = start_background(self._look_for_left(), f"{self.kind.name}-look")
        log.info(
            "spool.log.opened",
            spool=self.kind.name,
            path=str(self._path),
            runs=len(self.left),
            bytes=self._bytes,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.flush(_STOP_SECONDS)
        self._closing = True
        if self._looking is not None:
            self._looking.cancel()
        self._sync.stop()
        for timer in (self._stall_timer, self._retry_timer, self._gather_timer):
            if timer is not None:
                timer.cancel()
        if not self._writing:  # a write that hangs keeps the run until the process ends
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self.io.call(self._close_run)
            except (OSError, TimeoutError) as error:
                log.error("spool.log.not_closed", spool=self.kind.name, error=str(error))
        await self._stop_threads()

    @property
    def full(self) -> bool:
        """Whether there is no space for the records of another request."""
        return self._used + REQUEST_BYTES > self._settings.spool_bytes

    def begin(self, record: SpoolRecord, *, may_be_lost: bool = True) -> bool:
        """Record that a request begins; return whether its usage is recorded: there is space.

        Args:
            record: used if the request has no end. If this returns True, `end` or `discard` must be
                called once.
            may_be_lost: whether the request is lost with this process; otherwise another one ends
                its record, and the beginning is not written.
        """
        if self.full:
            self._metrics.refused.inc()
            self._measure()
            return False
        self._running += 1
        if may_be_lost:
            self._queue.append((BEGIN, record))
            self._write_later()
        return True

    def discard(self) -> None:
        """Record that a request, whose beginning was not written, goes on elsewhere."""
        self._running -= 1

    def reserve(self, count: int) -> bool:
        """Keep `count` bytes for a record without a begin; return whether there is space.

        If this returns True, `release` must be called once.
        """
        if self._used + count > self._settings.spool_bytes:
            self._metrics.refused.inc()
            self._measure()
            return False
        self._reserved += count
        return True

    def release(self, count: int) -> None:
        """Give back what `reserve` kept: the record is written, or there is none."""
        self._reserved -= count
        self._measure()

    def add(self, record: SpoolRecord, on_written: Callable[[], None]) -> None:
        """Record something without a begin; the rest as of `end`."""
        self._running += 1
        self.end(record, on_written)

    def end(self, record: SpoolRecord, on_written: Callable[[], None] | None = None) -> None:
        """Record how a request ended.

        Args:
            record: with the same ID as at its begin.
            on_written: called by the loop once the record survives the end of this process, or
                after `stall_seconds`.
        """
        self._queue.append((END, record))
        if on_written is None:
            self._write_later()
        elif self._stalled:
            self._loop.call_soon(on_written)
        else:
            self._waiting.append(on_written)
            self._write_soon()

    def rotate(self) -> None:
        """Start another segment, soon: earlier ones are removed once sinks have their records."""
        if not self._closing:
            self._write_thread.submit(self._rotate_on_thread)

    def freed(self, count: int) -> None:
        """Record that `count` bytes were removed."""
        self._bytes = max(0, self._bytes - count)
        self._measure()

    async def sync(self) -> Position:
        """Sync written lines to the disk; return the synced position.

        Raises:
            OSError: it is unknown whether they are on the disk.
        """
        return await self._sync.sync()

    async def flush(self, seconds: float) -> None:
        """Return once all earlier lines are written, or after `seconds`."""
        written = asyncio.Event()
        if self._queue or self._writing:
            (self._waiting if self._queue else self._released).append(written.set)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await written.wait()

    def _write_soon(self) -> None:
        """Write at the end of this iteration of the loop: the end of a response waits for it."""
        if not (self._scheduled or self._writing or self._retry_timer):
            self._scheduled = True
            self._loop.call_soon(self._write)

    def _write_later(self) -> None:
        """Write together with lines of the next moment: no response waits for it."""
        if not (self._scheduled or self._writing or self._retry_timer or self._gather_timer):
            self._gather_timer = self._loop.call_later(_GATHER_SECONDS, self._gathered)

    def _gathered(self) -> None:
        # A write in between wrote its lines, and left the timer: two cost more than they save.
        self._gather_timer = None
        if not (self._scheduled or self._retry_timer):
            self._write()

    def _write(self) -> None:
        """Pass queued lines to the thread."""
        self._scheduled, self._retry_timer = False, None
        if self._writing or self._closing or not self._queue:
            return
        self._writing = True
        entries, self._queue = self._queue, []
        self._released, self._waiting = self._waiting, []
        self._write_began = self._loop.time()
        if self._stall_timer is None:
            self._watch_for(self._settings.stall_seconds)
        self._write_thread.submit(partial(self._write_on_thread, entries))

    def _write_on_thread(self, entries: list[Entry]) -> Callable[[], None]:
        try:
            grown = self._writer.write(entries)
        except OSError as error:
            return partial(self._failed, entries, error)
        ended = sum(kind == END for kind, _ in entries)
        return partial(self._written, self._writer.position, grown, ended)

    def _rotate_on_thread(self) -> Callable[[], None]:
        try:
            self._writer.rotate()
        except OSError as error:
            why = error.strerror or str(error)
            return partial(log.error, "spool.log.not_rotated", spool=self.kind.name, error=why)
        return partial(self._rotated, self._writer.position)

    def _rotated(self, position: Position) -> None:
        self.position = position
        self._sync.note_written(position)
        self.grown.set()

    def _written(self, position: Position, grown: int, ended: int) -> None:
        self._writing = False
        self.position = position
        self._sync.note_written(position)
        self._bytes += grown
        self._running -= ended
        self.grown.set()
        if self._stalled:
            self._set_stalled(False)
            log.info("spool.log.recovered", spool=self.kind.name)
        self._measure()
        self._release()
        if self._waiting:
            self._write()
        elif self._queue:
            self._write_later()

    def _failed(self, entries: list[Entry], error: OSError) -> None:
        """Handle that the disk rejected lines: keep them, and retry in a while."""
        self._writing = False
        log.error(
            "spool.log.not_written",
            spool=self.kind.name,
            error=error.strerror or str(error),
            lines=len(entries),
        )
        self._queue = entries + self._queue
        self._set_stalled(True)
        self._release()
        if not self._closing:
            self._retry_timer = self._loop.call_later(_RETRY_SECONDS, self._write)

    def _watch_for(self, seconds: float) -> None:
        self._stall_timer = self._loop.call_later(seconds, self._watch)

    def _watch(self) -> None:
        """Release waiting requests if the current write started too long ago."""
        self._stall_timer = None
        if not self._writing or self._stalled:
            return
        left = self._write_began + self._settings.stall_seconds - self._loop.time()
        if left > 0:
            self._watch_for(left)
            return
        log.warning("spool.log.stalled", spool=self.kind.name, seconds=self._settings.stall_seconds)
        self._set_stalled(True)
        self._release()

    def _set_stalled(self, stalled: bool) -> None:
        self._stalled = stalled
        self._metrics.stalled.set(stalled)

    def _release(self) -> None:
        """Release requests that wait for the current write; and all, if it stalled."""
        released, self._released = self._released, []
        if self._stalled:
            released += self._waiting
            self._waiting = []
        for on_written in released:
            on_written()

    @property
    def _used(self) -> int:
        return self._bytes + self._running * REQUEST_BYTES + self._reserved

    def _measure(self) -> None:
        self._metrics.bytes.set(self._used)
        if self.full != self._was_full:
            self._was_full = self.full
            self._metrics.full.set(self.full)
            if self.full:
                log.error(
                    "spool.log.full", spool=self.kind.name, spool_bytes=self._settings.spool_bytes
                )
            else:
                log.info("spool.log.freed", spool=self.kind.name, bytes=self._used)

    async def _look_for_left(self) -> None:
        """Take over runs of processes that end while this one runs: they may never restart."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * random.uniform(0.5, 1.5))
            try:
                runs, size = await self.io.call(self._claim_left)
            except OSError as error:
                log.error("spool.log.not_read", spool=self.kind.name, error=error.strerror)
                continue
            if runs:
                self._bytes += size
                self._measure()
                log.info("spool.log.taken_over", spool=self.kind.name, runs=runs, bytes=size)
                self.grown.set()

    def _claim_left(self) -> tuple[int, int]:
        """Return the number of runs taken over, and their bytes; on the thread that closes them."""
        runs = claim_left(self._path, self._sinks)
        self.left += runs
        return len(runs), _bytes_of(runs)

    def _left_bytes(self) -> int:
        return _bytes_of(self.left)

    def _close_run(self) -> None:
        """Keep a run that some sink has not acknowledged, or remove it."""
        self._writer.close()
        delivered = all(self.run.acknowledged(sink) >= self.position for sink in self._sinks)
        if delivered and not (self._running or self._queue):
            self.run.remove()
        else:
            self.run.release()
        for run in self.left:
            run.release()

    async def _stop_threads(self) -> None:
        for thread in self._threads:
            await thread.stop(_STOP_SECONDS)


def _bytes_of(runs: Sequence[Run]) -> int:
    return sum(run.size(segment) for run in runs for segment in run.segments())
