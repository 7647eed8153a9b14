"""Writes the output of a batch, in the order of its input, and ends it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from baton.batches.records import BatchLease, LineState, WrittenLine
from baton.batches.store import BatchStore
from baton.files.records import FileDetails
from baton.files.store import FileStore
from services.frontend.generation.accounting.metering import Metering
from services.frontend.openai.batches.running.outputs import not_run, request_name
from services.frontend.openai.batches.running.results import read_usage
from services.frontend.openai.files.handlers import BATCH_OUTPUT

_LINES_AT_ONCE = 200


class BatchEnding:
    """Ends batches. One per frontend, on the event loop.

    Args:
        store: of batches.
        files: for their output.
        metering: records usage.
    """

    def __init__(self, store: BatchStore, files: FileStore, metering: Metering) -> None:
        self._store = store
        self._files = files
        self._metering = metering

    async def run(self, lease: BatchLease) -> None:
        """End a batch whose lines have ended, or are not to run any more.

        Raises:
            BatonError: UNAVAILABLE: another one ends it.
        """
        output = errors = None
        if lease.batch.in_progress_at is not None:
            await self._store.close_lines(lease)
            output = await self._write(lease, [LineState.ANSWERED], "output")
            errors = await self._write(lease, [LineState.FAILED, LineState.NOT_RUN], "error")
        await self._store.end(lease, output, errors)

    async def _write(
        self, lease: BatchLease, states: Sequence[LineState], what: str
    ) -> UUID | None:
        """Write lines to a file, which clients do not see yet; return its id, if there are any."""
        first = await self._store.lines(lease, states, 0, _LINES_AT_ONCE)
        if not first:
            return None
        batch = lease.batch
        details = FileDetails(
            BATCH_OUTPUT, f"{batch.text}_{what}.jsonl", batch.output_expires_seconds
        )
        pieces = self._pieces(lease, states, first)
        file = await self._files.write(
            batch.scope, pieces, lambda: details, 0, limited=False, ready=False
        )
        return file.id

    async def _pieces(
        self, lease: BatchLease, states: Sequence[LineState], lines: list[WrittenLine]
    ) -> AsyncIterator[bytes]:
        while lines:
            await self._record(lines)
            yield b"".join(self._line(lease, line) for line in lines)
            lines = await self._store.lines(lease, states, lines[-1].number, _LINES_AT_ONCE)

    @staticmethod
    def _line(lease: BatchLease, line: WrittenLine) -> bytes:
        batch, result = lease.batch, line.result
        if line.state == LineState.NOT_RUN:
            result = not_run(request_name(batch.id, line.number), line.custom_id, batch.outcome)
        return result.encode() + b"\n"

    async def _record(self, lines: Sequence[WrittenLine]) -> None:
        """Record usage whose owner did not come to it: it is not known whether it did."""
        records = [record for line in lines for record in read_usage(line.usage)]
        if not (records and self._metering.records):
            return
        written, left = asyncio.Event(), len(records)

        def on_written() -> None:
            nonlocal left
            left -= 1
            if not left:
                written.set()

        for record in records:
            self._metering.add(record, on_written)
        await written.wait()
