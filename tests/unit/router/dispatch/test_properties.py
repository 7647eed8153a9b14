"""Whatever the order of events: each query is answered once, and all sums end at zero."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.router.admission.controller import TicketUsage
from services.router.admission.waiting import DEFAULT_SETTINGS
from services.router.api.service import draining
from tests.support.examples import examples
from tests.unit.router.dispatch.conftest import World

MAX_WAIT = 20.0
SESSIONS = st.integers(1, 3)
WORKERS = st.integers(0, 2)


class Dispatching(RuleBasedStateMachine):
    """Queries, cancels, tickets, lost sessions, reports and time, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(workers=3, max_wait=MAX_WAIT, max_total=6, max_tenant=4)
        self.arrived: dict[int, tuple[int, float]] = {}
        """By query: session and time, of those that are to be answered."""
        self.open: dict[tuple[int, int], str] = {}
        """Tickets by session and query."""
        self.read: dict[int, int] = {}
        """Frames by session that were looked at."""

    @rule(
        session=SESSIONS,
        tokens=st.integers(1, 3_000),
        tenant=st.sampled_from("ab"),
        priority=st.sampled_from([0, 1, 2, 3, 99]),
        deadline=st.sampled_from([0.0, 5.0]),
        execution=st.integers(0, 3),
        take_over=st.booleans(),
        resumed=st.booleans(),
    )
    def ask(
        self,
        session: int,
        tokens: int,
        tenant: str,
        priority: int,
        deadline: float,
        execution: int,
        take_over: bool,
        resumed: bool,
    ) -> None:
        fields: dict[str, Any] = {"deadline_seconds": deadline, "output_tokens": int(resumed)}
        if execution:
            key = b"k" * 16
            fields["claim"] = {"key": key, "execution": execution, "take_over": take_over}
        context = {"tenant": tenant, "priority": priority}
        asked = self.world.asked + 1
        self.arrived[asked] = session, self.world.loop.time()
        self.world.ask(tokens, session=session, context=context, **fields)
        self.look()

    @rule(session=SESSIONS, tokens=st.lists(st.integers(500, 3_000), min_size=1, max_size=8))
    def flood(self, session: int, tokens: list[int]) -> None:
        for one in tokens:
            self.ask(session, one, "a", 2, 0.0, 0, take_over=False, resumed=False)

    @rule(session=SESSIONS, which=st.integers(0, 5))
    def cancel(self, session: int, which: int) -> None:
        waiting = list(self.world.session(session).waiting)
        if waiting:
            asked = waiting[which % len(waiting)]
            self.world.cancel(asked, session)
            del self.arrived[asked]

    @rule(which=st.integers(0, 5), used=st.one_of(st.none(), st.integers(0, 5_000)))
    def give_back(self, which: int, used: int | None) -> None:
        if self.open:
            session, asked = list(self.open)[which % len(self.open)]
            ticket = self.open.pop((session, asked))
            usage = {} if used is None else {ticket: TicketUsage(used, used // 10)}
            self.world.dispatcher.return_tickets(session, [ticket], [], usage)
            self.look()

    @rule(session=SESSIONS)
    def lose(self, session: int) -> None:
        self.world.session(session)
        self.world.end_session(session)
        self.read.pop(session, None)
        self.arrived = {one: known for one, known in self.arrived.items() if known[0] != session}
        self.open = {one: ticket for one, ticket in self.open.items() if one[0] != session}

    @rule(worker=WORKERS, pending=st.sampled_from([0, 50, 2_000]))
    def report(self, worker: int, pending: int) -> None:
        self.world.report(f"w{worker}", pending, list(self.open.values()))

    @rule(seconds=st.sampled_from([0.001, 0.3, 4.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.world.turn(seconds)
        self.look()
        if seconds > 0.1:
            now, dispatcher = self.world.loop.time(), self.world.dispatcher
            queues = dispatcher.placements.queue_seconds("m", now)
            # A moment later than its timer: one that fell to the gate just now may be idle still.
            if len(dispatcher):
                assert max(queues.values()) > DEFAULT_SETTINGS.gate - 0.01, "it waits in vain"

    def look(self) -> None:
        """Take in what was answered: each query that waits for it, and once."""
        for number, asker in self.world.sessions.items():
            for frame in asker.sent[self.read.get(number, 0) :]:
                if frame.HasField("placement"):
                    asked = frame.placement.correlation_id
                    self.open[number, asked] = frame.placement.ticket
                elif frame.HasField("failed"):
                    asked = frame.failed.correlation_id
                else:
                    continue
                session, _ = self.arrived.pop(asked)
                assert session == number
            self.read[number] = len(asker.sent)

    @invariant()
    def none_waits_beyond_its_bound(self) -> None:
        now = self.world.loop.time()
        self.look()
        assert all(now - arrived <= MAX_WAIT + 0.01 for _, arrived in self.arrived.values())

    @invariant()
    def what_waits_is_what_is_not_answered(self) -> None:
        self.look()
        waiting = {one for asker in self.world.sessions.values() for one in asker.waiting}
        assert waiting == self.arrived.keys()
        assert len(self.world.dispatcher) == len(waiting)

    def teardown(self) -> None:
        dispatcher = self.world.dispatcher
        dispatcher.drain(draining())
        self.look()
        assert not self.arrived
        for session in list(self.world.sessions):
            tickets = [ticket for (owner, _), ticket in self.open.items() if owner == session]
            dispatcher.return_tickets(session, tickets, [], {})
        assert dispatcher.idle
        assert len(self.world.fleet.tickets) == 0


TestDispatching = Dispatching.TestCase
TestDispatching.settings = settings(
    max_examples=examples(16), stateful_step_count=40, deadline=None
)
