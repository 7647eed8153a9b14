"""Tickets: what is in_flight equals what is open, and nothing is left at the end."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.router.state.stream_targets import StreamPlacement
from services.router.state.tickets import NOTHING, InFlightLoad, TicketTable
from tests.support.examples import examples

WORKERS = ("w1", "w2", "w3")
SESSIONS = (1, 2)
EXPIRY = 10.0
LIMIT = 8
TARGETS = (0.0, 0.05, 0.2)


class Tickets(RuleBasedStateMachine):
    """Any order of placements, returns, echoes, deaths and time, beside a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TicketTable("r", limit=LIMIT, expiry=EXPIRY)
        self.now = 0.0
        self.model: dict[str, tuple[int, float, dict[str, InFlightLoad]]] = {}
        self.streams: dict[str, StreamPlacement] = {}
        """By ticket, on workers that have not left since."""

    @rule(
        session=st.sampled_from(SESSIONS),
        loads=st.dictionaries(
            st.sampled_from(WORKERS),
            st.builds(InFlightLoad, st.integers(0, 99), st.integers(1, 3), st.integers(0, 9)),
            max_size=2,
        ),
        placement=st.none()
        | st.builds(
            StreamPlacement,
            st.sampled_from(WORKERS),
            st.integers(1, 3),
            st.sampled_from(TARGETS),
        ),
    )
    def issue(
        self, session: int, loads: dict[str, InFlightLoad], placement: StreamPlacement | None
    ) -> None:
        if len(self.model) == LIMIT:
            oldest = next(iter(self.model))
            expected = self.changed_by_the_end_of(oldest)
            del self.model[oldest]
            self.streams.pop(oldest, None)
        else:
            expected = set()
        ticket, changed = self.table.issue(session, self.now, loads, placement)
        assert changed == expected
        assert ticket not in self.model
        self.model[ticket] = (session, self.now, dict(loads))
        if placement is not None:
            self.streams[ticket] = placement

    def changed_by_the_end_of(self, ticket: str) -> set[str]:
        placement = self.streams.get(ticket)
        before = [one for one in self.streams.values() if placement and one[0] == placement[0]]
        changed = set(self.model[ticket][2])
        if placement is not None and any(one.itl_target for one in before):
            changed.add(placement.worker_id)
        return changed

    @precondition(lambda self: self.model)
    @rule(data=st.data(), session=st.sampled_from(SESSIONS))
    def return_tickets(self, data: st.DataObject, session: int) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.model)))
        expected = self.changed_by_the_end_of(ticket)
        changed = self.table.return_tickets(session, [ticket, "unknown"])
        if self.model[ticket][0] == session:
            assert changed == expected
            del self.model[ticket]
            self.streams.pop(ticket, None)
        else:
            assert not changed

    @precondition(lambda self: self.model)
    @rule(data=st.data(), worker=st.sampled_from(WORKERS))
    def acknowledge(self, data: st.DataObject, worker: str) -> None:
        tickets = data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=3))
        self.table.acknowledge(worker, [*tickets, "another router's"])
        for ticket in tickets:
            self.model[ticket][2].pop(worker, None)

    @rule(worker=st.sampled_from(WORKERS))
    def worker_dies(self, worker: str) -> None:
        self.table.remove_worker(worker)
        for _, _, loads in self.model.values():
            loads.pop(worker, None)
        self.streams = {t: one for t, one in self.streams.items() if one.worker_id != worker}

    @rule(session=st.sampled_from(SESSIONS))
    def session_ends(self, session: int) -> None:
        self.table.end_session(session)
        self.model = {t: entry for t, entry in self.model.items() if entry[0] != session}
        self.streams = {t: one for t, one in self.streams.items() if t in self.model}

    @rule(seconds=st.floats(0.1, EXPIRY))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)
        for _, issued, loads in self.model.values():
            if self.now - issued >= EXPIRY:
                loads.clear()

    @invariant()
    def in_flight_is_the_sum_of_what_is_open_and_unacknowledged(self) -> None:
        assert len(self.table) == len(self.model)
        for worker in WORKERS:
            in_flight = (p[worker] for _, _, p in self.model.values() if worker in p)
            assert self.table.in_flight(worker) == sum(in_flight, NOTHING)

    @invariant()
    def targets_are_those_of_the_streams_of_open_tickets(self) -> None:
        for worker in WORKERS:
            here = [one for one in self.streams.values() if one.worker_id == worker]
            targets = self.table.stream_targets(worker)
            assert (targets is None) == (not here)
            if targets is None:
                continue
            count = sum(one.streams for one in here)
            said = [one.itl_target for one in here if one.itl_target]
            assert targets.streams == count
            assert targets.strictest == min(said, default=math.inf)
            assert targets.cover(count) == (len(said) == len(here))
            assert not targets.cover(count + 1)

    def teardown(self) -> None:
        for session in SESSIONS:
            self.table.end_session(session)
        assert len(self.table) == 0
        assert all(self.table.in_flight(worker) == NOTHING for worker in WORKERS)
        assert all(self.table.stream_targets(worker) is None for worker in WORKERS)


Tickets.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=30)
TestTickets = Tickets.TestCase


@pytest.fixture
def table() -> TicketTable:
    return TicketTable("r", expiry=EXPIRY)


def test_an_acknowledgement_ends_the_load_of_that_worker_alone(table: TicketTable) -> None:
    ticket, _ = table.issue(1, 0.0, {"w1": InFlightLoad(100, 1, 7), "w2": InFlightLoad(0, 1, 9)})
    table.acknowledge("w1", [ticket])
    assert table.in_flight("w1") == NOTHING
    assert table.in_flight("w2") == InFlightLoad(0, 1, 9)


def test_a_ticket_of_another_session_cannot_be_returned(table: TicketTable) -> None:
    ticket, _ = table.issue(1, 0.0, {"w1": InFlightLoad(100, 1, 7)})
    assert table.return_tickets(2, [ticket]) == set()
    assert table.in_flight("w1") == InFlightLoad(100, 1, 7)


def test_a_ticket_never_acknowledged_stops_costing_but_can_still_be_returned(
    table: TicketTable,
) -> None:
    ticket, _ = table.issue(1, 0.0, {"w1": InFlightLoad(100, 1, 7)})
    assert table.expire(EXPIRY - 0.1) == set()
    assert table.expire(EXPIRY) == {"w1"}
    assert table.in_flight("w1") == NOTHING
    assert len(table) == 1
    table.return_tickets(1, [ticket])
    assert len(table) == 0


def test_returning_twice_counts_once(table: TicketTable) -> None:
    ticket, _ = table.issue(1, 0.0, {"w1": InFlightLoad(5, 1, 1)})
    table.issue(1, 0.0, {"w1": InFlightLoad(7, 1, 1)})
    table.return_tickets(1, [ticket])
    table.return_tickets(1, [ticket])
    assert table.in_flight("w1") == InFlightLoad(7, 1, 1)
