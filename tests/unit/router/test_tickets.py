"""Tickets: what is pledged equals what is open, and nothing is left at the end."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.router.state.tickets import NOTHING, Pledge, TicketBook

WORKERS = ("w1", "w2", "w3")
SESSIONS = (1, 2)
EXPIRY = 10.0
LIMIT = 8


class Tickets(RuleBasedStateMachine):
    """Any order of placements, returns, echoes, deaths and time, beside a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.book = TicketBook("r", limit=LIMIT, expiry=EXPIRY)
        self.now = 0.0
        self.model: dict[str, tuple[int, float, dict[str, Pledge]]] = {}

    @rule(
        session=st.sampled_from(SESSIONS),
        pledges=st.dictionaries(
            st.sampled_from(WORKERS),
            st.builds(Pledge, st.integers(0, 99), st.integers(1, 3), st.integers(0, 9)),
            max_size=2,
        ),
    )
    def issue(self, session: int, pledges: dict[str, Pledge]) -> None:
        if len(self.model) == LIMIT:
            del self.model[next(iter(self.model))]
        ticket = self.book.issue(session, self.now, pledges)
        assert ticket not in self.model
        self.model[ticket] = (session, self.now, dict(pledges))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), session=st.sampled_from(SESSIONS))
    def give_back(self, data: st.DataObject, session: int) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.model)))
        changed = self.book.give_back(session, [ticket, "unknown"])
        if self.model[ticket][0] == session:
            assert changed == set(self.model.pop(ticket)[2])
        else:
            assert not changed

    @precondition(lambda self: self.model)
    @rule(data=st.data(), worker=st.sampled_from(WORKERS))
    def echoed(self, data: st.DataObject, worker: str) -> None:
        tickets = data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=3))
        news = self.book.echoed(worker, [*tickets, "another router's"])
        assert news == any(worker in self.model[t][2] for t in tickets)
        for ticket in tickets:
            self.model[ticket][2].pop(worker, None)

    @rule(worker=st.sampled_from(WORKERS))
    def worker_dies(self, worker: str) -> None:
        self.book.forget_worker(worker)
        for _, _, pledges in self.model.values():
            pledges.pop(worker, None)

    @rule(session=st.sampled_from(SESSIONS))
    def session_ends(self, session: int) -> None:
        self.book.end_session(session)
        self.model = {t: entry for t, entry in self.model.items() if entry[0] != session}

    @rule(seconds=st.floats(0.1, EXPIRY))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.book.expire(self.now)
        for _, issued, pledges in self.model.values():
            if self.now - issued >= EXPIRY:
                pledges.clear()

    @invariant()
    def pledged_is_the_sum_of_what_is_open_and_unseen(self) -> None:
        assert len(self.book) == len(self.model)
        for worker in WORKERS:
            open_pledges = (p[worker] for _, _, p in self.model.values() if worker in p)
            assert self.book.pledged(worker) == sum(open_pledges, NOTHING)

    def teardown(self) -> None:
        for session in SESSIONS:
            self.book.end_session(session)
        assert len(self.book) == 0
        assert all(self.book.pledged(worker) == NOTHING for worker in WORKERS)


Tickets.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestTickets = Tickets.TestCase


@pytest.fixture
def book() -> TicketBook:
    return TicketBook("r", expiry=EXPIRY)


def test_an_echo_ends_the_pledge_to_that_worker_alone(book: TicketBook) -> None:
    ticket = book.issue(1, 0.0, {"w1": Pledge(100, 1, 7), "w2": Pledge(0, 1, 9)})
    assert book.echoed("w1", [ticket])
    assert book.pledged("w1") == NOTHING
    assert book.pledged("w2") == Pledge(0, 1, 9)


def test_a_ticket_of_another_session_cannot_be_returned(book: TicketBook) -> None:
    ticket = book.issue(1, 0.0, {"w1": Pledge(100, 1, 7)})
    assert book.give_back(2, [ticket]) == set()
    assert book.pledged("w1") == Pledge(100, 1, 7)


def test_a_ticket_never_echoed_stops_costing_but_can_still_be_returned(book: TicketBook) -> None:
    ticket = book.issue(1, 0.0, {"w1": Pledge(100, 1, 7)})
    assert book.expire(EXPIRY - 0.1) == set()
    assert book.expire(EXPIRY) == {"w1"}
    assert book.pledged("w1") == NOTHING
    assert len(book) == 1
    book.give_back(1, [ticket])
    assert len(book) == 0


def test_returning_twice_counts_once(book: TicketBook) -> None:
    ticket = book.issue(1, 0.0, {"w1": Pledge(5, 1, 1)})
    book.issue(1, 0.0, {"w1": Pledge(7, 1, 1)})
    book.give_back(1, [ticket])
    book.give_back(1, [ticket])
    assert book.pledged("w1") == Pledge(7, 1, 1)
