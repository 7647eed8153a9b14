"""What workers have left goes down while they compute, and never by more than is known of them."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.policy.placement_service import PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import InFlightLoad, TicketTable

LAYOUT = b"L" * 16
RATE = 1_000
"""Tokens per second."""
SILENCE = 2.0


class One:
    """A fleet of one worker."""

    def __init__(self) -> None:
        self.fleet = Fleet(PrefixIndex(), TicketTable("r"), silence_seconds=SILENCE)
        self.fleet.set_layouts([ModelLayout("m", LAYOUT, 16, 1000)])
        self.fleet.put(InstanceState("w", Role.COMBINED, model="m", layout_id=LAYOUT))

    def report(self, tokens: int, now: float, *tickets: str) -> None:
        report = LoadReport(
            "w",
            pending_prompt_tokens=tokens,
            free_pages=10_000,
            total_pages=10_000,
            prefill_tokens_per_second=RATE,
            tickets=tickets,
        )
        self.fleet.apply_report(report, now)

    def send(self, tokens: int, now: float) -> str:
        return self.fleet.issue(1, now, {"w": InFlightLoad(tokens, 1, 1)})

    def left(self, now: float) -> float:
        (worker,) = self.fleet.workers("m")
        return worker.queue_seconds(now)


def test_what_is_left_goes_down_until_it_is_reported_or_computed() -> None:
    one = One()
    one.report(1_000, 5.0)
    assert [one.left(now) for now in (5.0, 5.25, 6.0, 6.5)] == [1.0, 0.75, 0.0, 0.0]
    one.report(800, 6.5)
    assert one.left(6.5) == pytest.approx(0.8), "it was slower than it is known to be"
    assert one.left(7.0) == pytest.approx(0.3)


def test_what_was_sent_goes_down_from_then_on_and_not_from_before() -> None:
    one = One()
    one.report(0, 5.0)
    one.send(1_000, 6.0)
    assert one.left(6.0) == 1.0
    assert one.left(6.25) == 0.75
    one.send(500, 6.5)
    assert one.left(6.5) == 1.0
    one.send(100, 9.0)
    assert one.left(9.0) == pytest.approx(0.1), "it was dry before"


def test_a_report_that_names_what_was_sent_and_no_more_is_of_the_step_that_runs() -> None:
    one = One()
    one.report(1_000, 5.0)
    one.report(1_000, 5.5)
    assert one.left(5.5) == 0.5
    ticket = one.send(500, 5.6)
    one.report(1_500, 5.75, ticket)
    assert one.left(5.75) == pytest.approx(0.75)
    one.report(1_200, 5.75, ticket)
    assert one.left(5.75) == pytest.approx(1.2)


def test_a_worker_that_stands_still_is_not_taken_to_be_idle() -> None:
    one = One()
    for now in range(60):
        one.report(10_000, float(now))
    assert one.left(59.0) == 10.0 - SILENCE
    assert one.left(600.0) == 10.0 - SILENCE


def test_load_that_ends_unacknowledged_is_not_computed_twice() -> None:
    one = One()
    one.report(0, 0.0)
    ticket = one.send(1_000, 0.0)
    one.fleet.return_tickets(1, [ticket])
    assert one.left(0.5) == 0.0
    one.send(1_000, 0.5)
    assert one.left(0.5) == 1.0


def test_the_next_turn_is_when_a_worker_falls_to_the_gate() -> None:
    one = One()
    service = PlacementService(one.fleet)
    one.report(1_000, 5.0)
    assert service.next_turn("m", 0.1, 5.0) == pytest.approx(5.9)
    assert service.next_turn("m", 0.1, 5.95) == math.inf, "it has"
    one.report(3_000, 6.0)
    assert service.next_turn("m", 0.1, 6.0) == math.inf, "it is to report before"
    assert service.next_turn("nobody", 0.1, 6.0) == math.inf
    assert service.queue_seconds("m", 6.5) == {"w": 2.5}
    plan = service.plan(PlacementRequest("m", 100, 10), 6.5)
    assert (plan.queue_seconds, plan.ttft_seconds) == (2.5, 2.6)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["report", "same", "send", "return", "wait"]),
        st.integers(0, 4_000),
        st.floats(0, 3),
    ),
    max_size=40,
)


@given(EVENTS)
def test_it_is_never_less_than_what_time_and_silence_allow(
    events: list[tuple[str, int, float]],
) -> None:
    one, now, told = One(), 0.0, 0
    open_tickets: list[str] = []
    one.report(0, now)
    for kind, tokens, seconds in events:
        now += seconds
        before = one.left(now)
        if kind == "report":
            told = tokens
            one.report(told, now, *open_tickets)
            open_tickets = []
        elif kind == "same":
            one.report(told, now)
            assert one.left(now) == pytest.approx(before)
        elif kind == "send":
            open_tickets.append(one.send(tokens, now))
            assert one.left(now) == pytest.approx(before + tokens / RATE)
        elif kind == "return" and open_tickets:
            ticket = open_tickets.pop()
            one.fleet.return_tickets(1, [ticket])
            assert one.left(now) <= before
        (worker,) = one.fleet.workers("m")
        total = worker.pending_prompt_tokens / RATE
        later = [one.left(now + step / 10) for step in range(50)]
        assert total + 1e-9 >= later[0] >= total - SILENCE - 1e-9
        assert later == sorted(later, reverse=True)
        assert all(one - other <= 0.1 + 1e-9 for one, other in pairwise(later))
        assert later[-1] == pytest.approx(max(0.0, total - SILENCE))
