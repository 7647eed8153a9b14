"""A batch is as urgent as the batches of its tenant that wait for it."""

from uuid import UUID

from baton.batches.forecasts import RunningBatch
from baton.batches.urgency import BatchTime
from services.frontend.openai.batches.running.deadlines import effective_steps


def batch(number: int, tenant: str, step: int) -> RunningBatch:
    time = BatchTime(86_400.0, 3_600.0, 900.0)
    return RunningBatch(tenant, UUID(int=number), 10, time, step, 1.0, 0.0)


def test_those_before_an_urgent_one_are_as_urgent() -> None:
    batches = [batch(1, "a", 0), batch(2, "b", 1), batch(3, "a", 3), batch(4, "a", 1)]
    found = effective_steps(batches)
    assert [found[UUID(int=number)] for number in range(1, 5)] == [3, 1, 3, 1]
    assert effective_steps([]) == {}
