"""Lines in a real Postgres: claimed by one, with one result, counted once."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from baton.batches.copying import LineRows
from baton.batches.lines import LineStore
from baton.batches.records import (
    ActiveBatch,
    BatchLease,
    ClaimedLine,
    LineResult,
    LineState,
    NewBatch,
    NewLine,
    StoredBatch,
)
from baton.batches.retention import keep_forgetting
from baton.batches.store import BatchStore
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from baton.process.background import cancel_all, start_background
from tests.support.state.batches import start_batch
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

OURS = StateScope("acme", "proj_1")
SECONDS = 600.0
ADD_FILE = """
insert into files (tenant, project, id, purpose, name, bytes) values ($1, $2, $3, '', '', 1)
"""


class Runner:
    """One frontend's stores."""

    def __init__(self, database: Database, name: str) -> None:
        self.batches = BatchStore(database, name, SECONDS)
        self.lines = LineStore(database, name, SECONDS)

    async def write(self, lines: list[ClaimedLine], state: LineState = LineState.ANSWERED) -> int:
        results = [LineResult(line, state, f"r{line.number}", "[]", 5, 2, 3) for line in lines]
        return len(await self.lines.write(lines[0].batch, results))


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[Database]:
    settings = state_settings(await databases.migrated())
    async with Database(settings, "batches", BATCHES) as database:
        await database.wait_available(20)
        yield database


@pytest.fixture
def runners(database: Database) -> list[Runner]:
    return [Runner(database, f"frontend-{number}") for number in range(3)]


async def create(runner: Runner, number: int = 1) -> StoredBatch:
    values = "key_1", "/v1/chat/completions", UUID(int=number), "24h", 86_400, None, "{}"
    return await runner.batches.create(NewBatch(OURS, UUID(int=number), *values))


async def started(runner: Runner, lines: int, number: int = 1) -> ActiveBatch:
    await create(runner, number)
    lease = await runner.batches.claim()
    assert lease is not None
    new = [NewLine(at, f"c{at}", b"body %d" % at) for at in range(1, lines + 1)]
    assert await start_batch(runner.batches, lease, new)
    return next(one for one in await runner.lines.active() if one.id == UUID(int=number))


async def status(runner: Runner, number: int = 1) -> StoredBatch:
    return await runner.batches.get(OURS, f"batch_{number:032x}")


async def lapse(database: Database, table: str) -> None:
    """End all leases."""
    await database.execute(f"update {table} set lease_until = now() - interval '1 second'")


async def test_each_line_is_claimed_once(runners: list[Runner]) -> None:
    batch = await started(runners[0], 500)
    found: list[int] = []

    async def take(runner: Runner) -> None:
        while lines := await runner.lines.claim(batch, 7):
            found.extend(line.number for line in lines)

    await asyncio.gather(*(take(runner) for runner in runners))
    assert sorted(found) == list(range(1, 501))


async def test_the_first_valid_result_stands(runners: list[Runner], database: Database) -> None:
    first, second, _ = runners
    batch = await started(first, 2)
    (slow,) = await first.lines.claim(batch, 1)
    (other,) = await second.lines.claim(batch, 1)
    assert (slow.number, other.number, slow.attempt, slow.failures) == (1, 2, 1, 0)
    await lapse(database, "batch_lines")
    again = await second.lines.claim(batch, 2)
    assert [(line.attempt, line.failures) for line in again] == [(2, 1), (2, 1)]
    assert await first.write([slow]) == 0  # it lost the line
    assert await second.lines.renew([slow, again[0]]) == {(batch.id, 1)}
    assert await second.write([other]) == 0  # its own earlier claim
    assert await second.write(again) == 2
    assert await second.write(again) == 0
    found = await status(first)
    assert (found.status, found.completed, found.failed) == ("finalizing", 2, 0)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (10, 4, 6)


async def test_a_released_line_is_claimed_at_once_or_later(runners: list[Runner]) -> None:
    first, second, _ = runners
    batch = await started(first, 2)
    now, later = await first.lines.claim(batch, 2)
    await first.lines.release(now, failed=False)
    await first.lines.release(later, SECONDS, failed=True)
    (again,) = await second.lines.claim(batch, 2)
    assert (again.number, again.attempt, again.failures) == (1, 2, 0)
    await first.lines.release(now, failed=True)  # it is another's
    assert await second.write([again]) == 1


async def test_a_batch_is_checked_and_ended_by_one(
    runners: list[Runner], database: Database
) -> None:
    first, second, _ = runners
    await create(first)
    lease = await first.batches.claim()
    assert lease is not None and await second.batches.claim() is None
    await lapse(database, "batches")
    taken = await second.batches.claim()
    assert taken is not None and taken.attempt == 2
    assert not await first.batches.renew(lease) and await second.batches.renew(taken)
    assert not await start_batch(first.batches, lease, [NewLine(1, "c", b"{}")])
    assert (await status(first)).status == "validating"
    assert await database.fetch("select 1 from batch_lines") == []
    await second.batches.fail(taken, 3, '[{"code":"x"}]')
    found = await status(first)
    assert (found.status, found.total, found.errors) == ("failed", 3, '[{"code":"x"}]')
    assert await first.batches.claim() is None


async def test_a_batch_that_does_not_start_has_no_lines(
    runners: list[Runner], database: Database
) -> None:
    first = runners[0]
    await create(first)
    lease = await first.batches.claim()
    assert lease is not None
    gone = BatonError(Reason.NOT_FOUND, "the file was deleted")

    async def rows(error: BatonError | None) -> AsyncIterator[bytes]:
        yield LineRows(OURS.tenant, lease.batch.id).of([NewLine(1, "c1", b"{}")])
        if error is not None:
            raise error

    assert not await first.batches.start(lease, rows(None), lambda: None)
    with pytest.raises(BatonError, match="was deleted"):
        await first.batches.start(lease, rows(gone), lambda: (1, "tiny"))
    assert await database.fetch("select 1 from batch_lines") == []
    assert (await status(first)).status == "validating"
    assert await start_batch(first.batches, lease, [NewLine(1, "c1", b"{}")])


async def end(runner: Runner) -> BatchLease:
    lease = await runner.batches.claim()
    assert lease is not None
    await runner.batches.close_lines(lease)
    return lease


@pytest.mark.parametrize("outcome", ["completed", "cancelled", "expired"])
async def test_a_batch_ends_once_no_line_runs(
    runners: list[Runner], database: Database, outcome: str
) -> None:
    first, second, _ = runners
    batch = await started(first, 4)
    lines = await first.lines.claim(batch, 2 if outcome != "completed" else 4)
    if outcome == "cancelled":
        for _ in range(2):
            found = await first.batches.cancel(OURS, f"batch_{1:032x}")
            assert found.status == "cancelling"
    elif outcome == "expired":
        await database.execute("update batches set expires_at = now() - interval '1 second'")
        await first.batches.expire()
    assert await second.batches.claim() is None  # lines run
    assert await first.write(lines[:1]) == 1
    assert await first.write(lines[1:], LineState.FAILED) == len(lines) - 1
    lease = await end(second)
    numbers = [
        [line.number for line in await second.batches.lines(lease, states, 0, 9)]
        for states in ([LineState.ANSWERED], [LineState.FAILED, LineState.NOT_RUN])
    ]
    assert numbers == [[1], [2, 3, 4]]
    assert not await first.batches.end(lease, None, None)  # it is another's
    assert not await second.batches.end(lease, UUID(int=7), None)  # the file was swept
    assert (await status(first)).ended_at is None
    await database.execute(ADD_FILE, OURS.tenant, OURS.project, UUID(int=7))
    assert await second.batches.end(lease, UUID(int=7), None)
    found = await status(first)
    assert (found.status, found.completed, found.failed) == (outcome, 1, 3)
    assert found.output_file == UUID(int=7) and found.ended_at is not None
    assert await database.fetch("select 1 from batch_lines") == []
    if outcome == "cancelled":
        assert (await first.batches.cancel(OURS, f"batch_{1:032x}")).status == outcome
    else:
        with pytest.raises(BatonError, match=f"with status {outcome!r}"):
            await first.batches.cancel(OURS, f"batch_{1:032x}")


async def test_no_result_is_written_after_a_batch_was_closed(
    runners: list[Runner], database: Database
) -> None:
    first, second, _ = runners
    batch = await started(first, 1)
    lines = await first.lines.claim(batch, 1)
    await first.batches.cancel(OURS, f"batch_{1:032x}")
    await lapse(database, "batch_lines")
    lease = await end(second)
    assert await first.write(lines) == 0
    assert await second.batches.end(lease, None, None)


async def test_batches_are_forgotten_days_after_their_end(
    runners: list[Runner], database: Database
) -> None:
    first = runners[0]
    for number in (1, 2, 3):
        await create(first, number)
    ended = "update batches set ended_at = now() - interval '1 day' * $1 where id = $2"
    await database.execute(ended, 9, f"{1:032x}")
    await database.execute(ended, 7, f"{2:032x}")
    task = start_background(keep_forgetting(first.batches, 8), "old batches")

    async def left() -> bool:
        return len(await first.batches.recent(OURS, 9, None)) == 2

    try:
        assert await eventually(left)
    finally:
        await cancel_all([task])
    assert [batch.id.int for batch in await first.batches.recent(OURS, 9, None)] == [3, 2]
    await keep_forgetting(first.batches, 0)  # none are: it ends at once


async def test_usage_stays_until_it_is_recorded(runners: list[Runner]) -> None:
    first = runners[0]
    batch = await started(first, 2)
    await first.write(await first.lines.claim(batch, 2))
    await first.lines.forget_usage(batch, [1])
    lease = await end(first)
    lines = await first.batches.lines(lease, [LineState.ANSWERED], 0, 9)
    assert [line.usage for line in lines] == ["", "[]"]


async def test_lists_are_of_a_project_newest_first(runners: list[Runner]) -> None:
    store = runners[0].batches
    made = [await create(runners[0], number) for number in (1, 2, 3)]
    assert await store.recent(OURS, 2, None) == made[:0:-1]
    assert await store.recent(OURS, 9, made[1].id) == made[:1]
    assert await store.recent(StateScope("acme", ""), 9, None) == []
