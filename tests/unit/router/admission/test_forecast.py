"""A forecast fills the workers up to a level; a naive sum says the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.admission.forecast import Forecast

QUEUES = st.lists(st.floats(0, 50), min_size=1, max_size=12)


@given(QUEUES, st.floats(0, 500))
def test_what_is_computed_until_then_is_the_work(queues: list[float], work: float) -> None:
    level = Forecast(queues).begins(work)
    assert level >= min(queues)
    assert sum(max(0.0, level - queue) for queue in queues) == pytest.approx(work, abs=1e-6)


@given(QUEUES, st.lists(st.floats(0, 9), max_size=20))
def test_no_prompt_begins_later_where_the_next_worker_takes_each(
    queues: list[float], prompts: list[float]
) -> None:
    forecast, ends = Forecast(queues), list(queues)
    for before, work in enumerate(prompts):
        assert min(ends) <= forecast.begins(sum(prompts[:before])) + 1e-6
        ends[ends.index(min(ends))] += work
