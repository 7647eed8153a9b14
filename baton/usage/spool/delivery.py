"""Delivers the records of a spool to a sink, oldest first, and frees acknowledged ones."""

import asyncio
from contextlib import suppress
from functools import partial

import msgspec

from baton.process.background import start_background
from baton.telemetry.logs import get_logger
from baton.usage.metrics import DAMAGED_BYTES, DELIVERED, LOST, SINK_FAILURES, SINK_OLDEST
from baton.usage.sinks.base import Sink, SinkError
from baton.usage.spool.reader import RunReader
from baton.usage.spool.run import START, Position, Run
from baton.usage.spool.spool import Spool

DELIVER_SECONDS = 1.0
"""How long records wait for others, to be sent in one batch."""
_FIRST_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 30.0
_DISK_RETRY_SECONDS = 2.0
"""Longest retry interval if a disk of this host failed."""
_STOP_SECONDS = 2.0
_LOST_AT_ONCE = 500

log = get_logger(__name__)


class _StoppedError(Exception):
    """The process stops, and a delivery failed."""


class _Times(msgspec.Struct):
    began_ms: int
    ended_ms: int | None = None


class Delivery:
    """Delivers all records of a spool to one sink: first abandoned runs, then its own.

    Each is delivered at least once, and twice only if the sink stored it right before a crash or an
    error.

    A sink that fails gets the same records again, at growing intervals; the spool keeps new ones.
    A local sink is retried within two seconds, so that it recovers quickly from a full disk.

    Args:
        spool: entered before this, and left after.
        sink: closed with this.
        seconds: time between two batches, unless there are many records.
    """

    def __init__(self, spool: Spool, sink: Sink, seconds: float = DELIVER_SECONDS) -> None:
        self._spool = spool
        self._sink = sink
        self._seconds = seconds
        self._left = 0
        """Abandoned runs that were processed."""
        self._times = msgspec.json.Decoder(_Times)
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Delivery":
        SINK_OLDEST.labels(self._sink.name).set(0)
        self._task = start_background(self._deliver(), f"usage-{self._sink.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._spool.flush(_STOP_SECONDS)
        self._stopping.set()  # once it has delivered existing records
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._sink.close()

    async def _deliver(self) -> None:
        spool, at = self._spool, START
        reader = RunReader(spool.run, self._sink.name, left=False)
        try:
            while True:
                last = self._stopping.is_set()
                await self._deliver_all_left()
                # Acknowledged lines stay here too: without its end a request would be `lost` after
                # a crash.
                upto = await self._synced()
                while at < upto:
                    at = await self._bring(spool.run, reader, at, upto)
                if at >= spool.position:
                    SINK_OLDEST.labels(self._sink.name).set(0)
                if last:
                    return
                await self._wait(self._seconds)
        except _StoppedError:
            return  # unacknowledged records stay, for the next process

    async def _deliver_all_left(self) -> None:
        while self._left < len(self._spool.left):
            run = self._spool.left[self._left]
            self._left += 1
            try:
                await self._deliver_left(run)
            except OSError as error:  # the next process tries it again
                log.error("usage.spool.not_read", run=run.directory.name, error=error.strerror)

    async def _synced(self) -> Position:
        try:
            return await self._spool.sync()
        except OSError as error:
            log.error("usage.spool.not_synced", error=error.strerror)
            return START

    async def _deliver_left(self, run: Run) -> None:
        """Deliver the remaining and lost records of an abandoned run; then remove it."""
        name, io = self._sink.name, self._spool.io
        reader = await io.call(partial(RunReader, run, name, left=True))
        end = await io.call(run.end)
        at = START
        while at < end:
            at = await self._bring(run, reader, at, end)
        lost = reader.lost()
        for begin in range(0, len(lost), _LOST_AT_ONCE):
            await self._write(lost[begin : begin + _LOST_AT_ONCE])
        LOST.inc(len(lost))
        self._spool.freed(await io.call(partial(run.finish, name)))
        log.info("usage.run.replayed", sink=name, run=run.directory.name, lost=len(lost))

    async def _bring(self, run: Run, reader: RunReader, at: Position, upto: Position) -> Position:
        """Deliver the next records after `at`; return the position that the sink has
        acknowledged."""
        io = self._spool.io
        try:
            batch = await io.call(partial(reader.read, upto))
            if batch.damaged:
                DAMAGED_BYTES.inc(batch.damaged)
                name = run.directory.name
                log.error("usage.spool.damaged", run=name, bytes=batch.damaged)
            if batch.records:
                await self._write(batch.records)
            freed = await io.call(partial(run.acknowledge, self._sink.name, batch.end))
        except OSError as error:
            log.error("usage.spool.not_read", run=run.directory.name, error=error.strerror)
            await self._wait_again(_DISK_RETRY_SECONDS)
            return at  # the next batch acknowledges this one too
        self._spool.freed(freed)
        return batch.end

    async def _write(self, records: list[bytes]) -> None:
        """Write records to the sink until it accepts them."""
        first = self._times.decode(records[0])
        oldest_ms = first.began_ms if first.ended_ms is None else first.ended_ms
        SINK_OLDEST.labels(self._sink.name).set(oldest_ms / 1000)
        seconds = _FIRST_RETRY_SECONDS
        longest = _DISK_RETRY_SECONDS if self._sink.local else _LONGEST_RETRY_SECONDS
        while True:
            try:
                await self._sink.write(records)
            except SinkError as error:
                SINK_FAILURES.labels(self._sink.name).inc()
                log.warning(
                    "usage.sink.failed",
                    sink=self._sink.name,
                    records=len(records),
                    error=str(error),
                    retry_seconds=seconds,
                )
                await self._wait_again(seconds)
                seconds = min(2 * seconds, longest)
            else:
                DELIVERED.labels(self._sink.name).inc(len(records))
                return

    async def _wait_again(self, seconds: float) -> None:
        """Wait before a retry.

        Raises:
            _StoppedError: there will be no retry.
        """
        await self._wait(seconds)
        if self._stopping.is_set():
            raise _StoppedError

    async def _wait(self, seconds: float) -> None:
        """Wait, or until the delivery is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
