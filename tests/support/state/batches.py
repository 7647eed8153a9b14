"""Batches whose lines a test makes."""

from collections.abc import AsyncIterator, Sequence

from baton.batches.copying import LineRows
from baton.batches.records import BatchLease, NewLine
from baton.batches.store import BatchStore


async def start_batch(store: BatchStore, lease: BatchLease, lines: Sequence[NewLine]) -> bool:
    """Let lines of a claimed batch run; return whether they do."""

    async def rows() -> AsyncIterator[bytes]:
        yield LineRows(lease.batch.tenant, lease.batch.id).of(lines)

    return await store.start(lease, rows(), lambda: (len(lines), "tiny"))
