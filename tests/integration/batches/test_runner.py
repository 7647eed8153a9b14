"""The runner: which batches it claims lines of."""

from collections import Counter

from baton.batches.estimates import CompletionEstimates
from baton.batches.forecasts import ForecastStore
from baton.batches.lines import LineStore
from baton.batches.records import ClaimedLine, LineResult, LineState
from baton.postgres.database import Database
from baton.process.background import cancel_all, start_background
from services.frontend.openai.batches.checking.input import InputCheck
from services.frontend.openai.batches.running.deadlines import DeadlineWatch
from services.frontend.openai.batches.running.ending import BatchEnding
from services.frontend.openai.batches.running.line import LineRunner
from services.frontend.openai.batches.running.runner import BatchRunner
from services.frontend.placement.line_room import LineRoom
from tests.integration.batches.test_line_store import Runner, database, runners, started, status
from tests.support.wait import eventually

__all__ = ["database", "runners"]  # fixtures
AWAY, LINES = "away", 3


class EndedLines(LineRunner):
    """Ends each line at once."""

    def __init__(self, lines: LineStore) -> None:
        self._store = lines
        self.ended = Counter[int]()

    def weight(self, key: str) -> int:
        return 1

    async def run(self, line: ClaimedLine, *, urgent: bool) -> None:
        assert not urgent
        assert await self._store.write(line.batch, [LineResult(line, LineState.ANSWERED, "")])
        self.ended[line.batch.id.int] += 1


class NoCheck(InputCheck):
    def __init__(self) -> None:
        pass


class NoEnding(BatchEnding):
    def __init__(self) -> None:
        pass


async def test_a_batch_whose_model_is_away_holds_no_other_back(
    runners: list[Runner], database: Database
) -> None:
    first = runners[0]
    for number in (1, 2):  # of one tenant: the first one expires first
        await started(first, LINES, number)
    model = "update batches set model = $1 where id = $2"
    await database.execute(model, AWAY, f"{1:032x}")
    # Ended batches are not ended here: another one has them.
    await database.execute("update batches set lease_until = now() + interval '1 hour'")
    away = {AWAY}
    ended = EndedLines(first.lines)
    runner = BatchRunner(
        first.batches,
        first.lines,
        ended,
        NoCheck(),
        NoEnding(),
        DeadlineWatch(ForecastStore(database), CompletionEstimates(first.batches, 120.0)),
        LineRoom(2),
        away.__contains__,
    )
    task = start_background(runner.run(), "runner")
    try:

        async def second_ended() -> bool:
            return (await status(first, 2)).completed == LINES

        assert await eventually(second_ended)
        assert ended.ended == {2: LINES} and (await status(first, 1)).completed == 0
        away.clear()

        async def first_ended() -> bool:
            return (await status(first, 1)).completed == LINES

        assert await eventually(first_ended)
    finally:
        await cancel_all([task])
        await runner.close()
    assert ended.ended == {1: LINES, 2: LINES}
