"""Delivers the records of a spool to a sink, oldest first, and frees acknowledged ones."""

import asyncio
from contextlib import suppress
from functools import partial

import msgspec

from baton.process.background import start_background
from baton.spool.reader import RunReader
from baton.spool.run import START, Position, Run
from baton.spool.sink import Sink, SinkError
from baton.spool.spool import Spool
from baton.telemetry.logs import get_logger

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
        seconds: time between two batches, unless there are many records; 0: records are delivered
            as they come.
    """

    def __init__(self, spool: Spool, sink: Sink, seconds: float = DELIVER_SECONDS) -> None:
        self._spool = spool
        self._sink = sink
        self._seconds = seconds
        self._metrics = spool.kind.metrics
        self._left = 0
        """Abandoned runs that were processed."""
        self._times = msgspec.json.Decoder(_Times)
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Delivery":
        self._metrics.sink_oldest.labels(self._sink.name).set(0)
        self._task = start_background(self._deliver(), f"{self._spool.kind.name}-{self._sink.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._spool.flush(_STOP_SECONDS)
        self._stopping.set()  # once it has delivered existing records
        self._spool.grown.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._sink.close()

    async def _deliver(self) -> None:
        spool, at = self._spool, START
        reader = self._reader(spool.run, left=False)
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
                    self._metrics.sink_oldest.labels(self._sink.name).set(0)
                if last:
                    return
                if self._seconds:
                    await self._wait(self._seconds)
                elif at >= spool.position and self._left == len(spool.left):
                    spool.grown.clear()
                    await spool.grown.wait()
        except _StoppedError:
            return  # unacknowledged records stay, for the next process

    async def _deliver_all_left(self) -> None:
        while self._left < len(self._spool.left):
            run = self._spool.left[self._left]
            self._left += 1
            try:
                await self._deliver_left(run)
            except OSError as error:  # the next process tries it again
                log.error(
                    "spool.log.not_read",
                    spool=self._spool.kind.name,
                    run=run.directory.name,
                    error=error.strerror,
                )

    def _reader(self, run: Run, *, left: bool) -> RunReader:
        return RunReader(run, self._sink.name, left=left, max_record=self._spool.kind.max_record)

    async def _synced(self) -> Position:
        try:
            return await self._spool.sync()
        except OSError as error:
            log.error("spool.log.not_synced", spool=self._spool.kind.name, error=error.strerror)
            await self._wait(_DISK_RETRY_SECONDS)
            return START

    async def _deliver_left(self, run: Run) -> None:
        """Deliver the remaining and lost records of an abandoned run; then remove it."""
        name, io = self._sink.name, self._spool.io
        reader = await io.call(partial(self._reader, run, left=True))
        end = await io.call(run.end)
        at = START
        while at < end:
            at = await self._bring(run, reader, at, end)
        lost = reader.lost()
        for begin in range(0, len(lost), _LOST_AT_ONCE):
            await self._write(lost[begin : begin + _LOST_AT_ONCE])
        if self._metrics.lost is not None:
            self._metrics.lost.inc(len(lost))
        self._spool.freed(await io.call(partial(run.finish, name)))
        log.info(
            "spool.run.replayed",
            spool=self._spool.kind.name,
            sink=name,
            run=run.directory.name,
            lost=len(lost),
        )

    async def _bring(self, run: Run, reader: RunReader, at: Position, upto: Position) -> Position:
        """Deliver the next records after `at`; return the position that the sink has
        acknowledged."""
        io = self._spool.io
        try:
            batch = await io.call(partial(reader.read, upto))
            if batch.damaged:
                self._metrics.damaged_bytes.inc(batch.damaged)
                name = run.directory.name
                log.error(
                    "spool.log.damaged", spool=self._spool.kind.name, run=name, bytes=batch.damaged
                )
            if batch.records:
                await self._write(batch.records)
            freed = await io.call(partial(run.acknowledge, self._sink.name, batch.end))
        except OSError as error:
            log.error(
                "spool.log.not_read",
                spool=self._spool.kind.name,
                run=run.directory.name,
                error=error.strerror,
            )
            await self._wait_again(_DISK_RETRY_SECONDS)
            return at  # the next batch acknowledges this one too
        self._spool.freed(freed)
        return batch.end

    async def _write(self, records: list[bytes]) -> None:
        """Write records to the sink until it accepts them."""
        first = self._times.decode(records[0])
        oldest_ms = first.began_ms if first.ended_ms is None else first.ended_ms
        self._metrics.sink_oldest.labels(self._sink.name).set(oldest_ms / 1000)
        seconds = _FIRST_RETRY_SECONDS
        longest = _DISK_RETRY_SECONDS if self._sink.local else _LONGEST_RETRY_SECONDS
        while True:
            try:
                await self._sink.write(records)
            except SinkError as error:
                self._metrics.sink_failures.labels(self._sink.name).inc()
                log.warning(
                    "spool.sink.failed",
                    spool=self._spool.kind.name,
                    sink=self._sink.name,
                    records=len(records),
                    error=str(error),
                    retry_seconds=seconds,
                )
                await self._wait_again(seconds)
                seconds = min(2 * seconds, longest)
            else:
                self._metrics.delivered.labels(self._sink.name).inc(len(records))
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
