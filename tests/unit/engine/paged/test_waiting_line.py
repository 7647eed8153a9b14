"""The line of sequences that wait, against one that is sorted anew each time."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from baton.engine.base import SequenceRequest
from baton.engine.paged.sequence import OVERDUE_SECONDS, LiveSequence, open_sequence
from baton.engine.paged.waiting_line import WaitingLine
from baton.engine.work_order import WorkOrder
from baton.sampling import SamplingParams
from tests.support.engine.info import engine_info
from tests.support.examples import examples

INFO = engine_info(4, context_tokens=64, vocab_tokens=100)
PLAIN = SequenceRequest(0, b"root", (1, 2), SamplingParams(max_tokens=9))


def sequence(number: int, now: float, order: WorkOrder, *, resumed: bool) -> LiveSequence:
    output = (3,) if resumed else ()
    request = replace(PLAIN, id=number, order=order, output=output)
    return open_sequence(request, number, now, INFO)


ORDERS = st.builds(
    WorkOrder,
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([0.0, 1.0]),
    st.floats(-10, 10),
)
STEPS = st.one_of(
    st.tuples(st.just("add"), ORDERS, st.booleans()),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(st.just("preempt"), st.integers(0, 99)),
    st.tuples(st.just("wait"), st.floats(0, 1.5 * OVERDUE_SECONDS)),
)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_it_equals_a_sorted_list(steps: list[tuple[object, ...]]) -> None:
    line = WaitingLine()
    waiting: list[LiveSequence] = []
    gone: list[LiveSequence] = []
    now = 0.0
    for count, step in enumerate(steps):
        match step:
            case ("add", WorkOrder() as order, bool(resumed)):
                one = sequence(count, now, order, resumed=resumed)
                waiting.append(one)
                line.add(one, now)
            case ("remove", int(index)) if waiting:
                one = waiting.pop(index % len(waiting))
                line.remove(one)
                gone.append(one)
            case ("preempt", int(index)) if gone:
                one = gone.pop(index % len(gone))
                one.started = True
                waiting.append(one)
                line.add(one, now)
            case ("wait", float(seconds)):
                now += seconds
        line.move_overdue(now)
        assert list(line) == sorted(waiting, key=lambda each: each.turn(now))
        assert len(line) == len(waiting)


def test_nothing_waits_for_ever_behind_what_is_more_urgent_in_its_class() -> None:
    line = WaitingLine()
    late = sequence(0, 0.0, WorkOrder(tier=9, tenant_lead=1e12), resumed=False)
    line.add(late, 0.0)
    now = 0.0
    for number in range(1, 1000):
        now += 0.1
        line.add(sequence(number, now, WorkOrder(), resumed=False), now)
        line.move_overdue(now)
        first = next(iter(line))
        if first is late:
            break
        line.remove(first)
    assert abs(now - OVERDUE_SECONDS) < 0.11
