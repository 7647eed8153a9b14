"""Writes results of lines in blocks, and then their usage records, once."""

import asyncio
from collections import defaultdict

import msgspec

from baton.batches.lines import LineStore
from baton.batches.records import ActiveBatch, LineResult
from baton.errors import BatonError
from baton.telemetry.logs import get_logger
from baton.usage.record import UsageRecord
from services.frontend.generation.accounting.metering import Metering

_GATHER_SECONDS = 0.02
_RETRY_SECONDS = 1.0
_usage = msgspec.json.Decoder(list[UsageRecord])

log = get_logger(__name__)


def read_usage(text: str) -> list[UsageRecord]:
    """Return the usage records of a line."""
    return _usage.decode(text) if text else []


class ResultWriter:
    """Writes results. One per frontend, on the event loop; `run` does the work.

    Args:
        lines: the store.
        metering: records usage.
    """

    def __init__(self, lines: LineStore, metering: Metering) -> None:
        self._lines = lines
        self._metering = metering
        self._waiting: list[tuple[LineResult, asyncio.Future[bool]]] = []
        self._recorded: list[tuple[ActiveBatch, int]] = []
        """Lines whose usage is in the spool."""
        self._woken = asyncio.Event()

    async def write(self, result: LineResult) -> bool:
        """Write a result; return whether the line was still this frontend's."""
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, written))
        self._woken.set()
        return await written

    async def run(self) -> None:
        """Write results until cancelled."""
        while True:
            await self._woken.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._woken.clear()
            await self._write_all()

    async def _write_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        groups: dict[ActiveBatch, list[tuple[LineResult, asyncio.Future[bool]]]] = defaultdict(list)
        for result, written in waiting:
            if not written.done():  # its task was cancelled
                groups[result.line.batch].append((result, written))
        for batch, group in groups.items():
            numbers = await self._write(batch, [result for result, _ in group])
            for result, written in group:
                valid = result.line.number in numbers
                if valid and result.usage:
                    self._record(result)
                if not written.done():
                    written.set_result(valid)
        recorded, self._recorded = self._recorded, []
        await self._forget(recorded)

    async def _write(self, batch: ActiveBatch, results: list[LineResult]) -> set[int]:
        while True:
            try:
                return await self._lines.write(batch, results)
            except BatonError as error:  # the leases may end meanwhile: then it is not written
                log.warning("batches.results.not_written", error=error.message)
                await asyncio.sleep(_RETRY_SECONDS)

    def _record(self, result: LineResult) -> None:
        records = read_usage(result.usage)
        left = len(records)

        def on_written() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._recorded.append((result.line.batch, result.line.number))
                self._woken.set()

        for record in records:
            self._metering.add(record, on_written)

    async def _forget(self, recorded: list[tuple[ActiveBatch, int]]) -> None:
        groups: dict[ActiveBatch, list[int]] = defaultdict(list)
        for batch, number in recorded:
            groups[batch].append(number)
        try:
            for batch, numbers in groups.items():
                await self._lines.forget_usage(batch, numbers)
        except BatonError as error:  # the records are added again before the batch ends
            log.warning("batches.results.not_written", error=error.message)
