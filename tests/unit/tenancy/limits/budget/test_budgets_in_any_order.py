"""Whatever is lost, late or said twice: never more than the budget, and nothing of it lost."""

from collections import Counter
from dataclasses import dataclass
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.tenancy.limits.budget.ledger import Ledger
from baton.tenancy.limits.limit_set import CostHold, LimitRefusal, LimitReservation
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import LimitId, Measure, Subject, SubjectLimits
from tests.support.examples import examples

MONTH = 202611
FRONTENDS = 3
BUDGETS = {Subject.TENANT: 5000, Subject.KEY: 4000}
SUBJECTS = [
    SubjectLimits(subject, "x", budget_nanodollars_per_month=amount)
    for subject, amount in BUDGETS.items()
]
IDS = {subject: LimitId(subject, "x", Measure.COST, MONTH) for subject in BUDGETS}


@dataclass
class Frame:
    """On its way from a frontend to a router."""

    frontend: str
    router: str
    asks: list[Ask]
    roll_call: tuple[int, bytes] | None


@dataclass
class Reply:
    """On its way from a router to a frontend: answers, or an era."""

    frontend: str
    router: str
    content: LimitGrant | int


class Frontend:
    def __init__(self, name: str) -> None:
        self.name = name
        self.limiter = Limiter(MONTH)
        self.set = self.limiter.limit_set(SUBJECTS)
        self.running: list[LimitReservation] = []
        self.waiting: list[CostHold] = []
        self.spent = 0

    @property
    def charged(self) -> dict[Subject, int]:
        return {share.limit.id.subject: share.charged for share in self.set.budgets}


class Router:
    def __init__(self, name: str) -> None:
        self.name = name
        self.owner = LimitOwner(name)
        self.ledger = Ledger(name, self.owner)


class AnyOrder(RuleBasedStateMachine):
    """Requests at three frontends of a key with a budget, whose tenant has one too."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.names = count()
        self.etcd: dict[LimitId, bytes] = {}
        self.frontends: dict[str, Frontend] = {}
        self.routers: dict[str, Router] = {}
        self.flying: list[Frame | Reply] = []
        self.dead: Counter[Subject] = Counter()
        """What frontends were charged that died."""
        self.spent = 0
        """By them."""
        self.deaths = 0
        for _ in range(FRONTENDS):
            self.start_frontend()
        self.start_router()
        self.start_router()
        for frontend in self.frontends:
            self.see(frontend)

    def start_frontend(self) -> None:
        name = f"frontend-{next(self.names)}"
        self.frontends[name] = Frontend(name)
        self.alive()

    def start_router(self) -> None:
        name = f"router-{next(self.names)}"
        self.routers[name] = Router(name)
        self.changed()

    def alive(self) -> None:
        for router in self.routers.values():
            router.owner.roll_call.observe(self.frontends)

    def changed(self) -> None:
        self.alive()
        for router in self.routers.values():
            if router.owner.observe(list(self.routers), self.now):
                router.ledger.give_up()
                for frontend in self.frontends:
                    era = router.owner.roll_call.era
                    self.flying.append(Reply(frontend, router.name, era))

    # Frontends.

    def attempt(self, frontend: Frontend, hold: CostHold) -> bool:
        """Try to reserve; return whether the request waits."""
        outcome = frontend.set.reserve(1, self.now, hold)
        if outcome is None:
            return True
        if isinstance(outcome, LimitRefusal):
            hold.settle(0)
        else:
            frontend.running.append(outcome)
        return False

    def retry(self, frontend: Frontend) -> None:
        frontend.waiting = [hold for hold in frontend.waiting if self.attempt(frontend, hold)]

    @rule(data=st.data(), cost=st.integers(1, 1500), ordered=st.booleans())
    def request(self, data: st.DataObject, cost: int, ordered: bool) -> None:
        frontend = data.draw(st.sampled_from(list(self.frontends.values())))
        hold = frontend.set.hold(cost)
        assert hold is not None
        if self.attempt(frontend, hold):
            frontend.waiting.append(hold)
            if ordered:
                self.exchange()

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        frontend = data.draw(st.sampled_from(list(self.frontends.values())))
        for hold in frontend.waiting:
            hold.settle(0)
        frontend.waiting.clear()

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        frontend = data.draw(st.sampled_from(list(self.frontends.values())))
        if frontend.running:
            reservation = frontend.running.pop(data.draw(st.integers(0, len(frontend.running) - 1)))
            hold = reservation.hold
            assert hold is not None
            cost = data.draw(st.integers(0, hold.cost))
            frontend.spent += cost
            reservation.settle(1, cost)
            reservation.settle(1, 0)

    @rule(data=st.data())
    def see_routers(self, data: st.DataObject) -> None:
        self.see(data.draw(st.sampled_from(list(self.frontends))))

    def see(self, frontend: str) -> None:
        one = self.frontends[frontend]
        one.limiter.observe(list(self.routers), len(self.frontends), self.now)
        self.retry(one)

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self.flush(data.draw(st.sampled_from(list(self.frontends.values()))))

    def flush(self, frontend: Frontend) -> None:
        frames: dict[str, list[Ask]] = {}
        for router, ask in frontend.limiter.take_messages(self.now):
            frames.setdefault(router, []).append(ask)
        eras = frontend.limiter.take_roll_calls()
        for router in frames.keys() | eras.keys():
            call = (eras[router], frontend.limiter.view) if router in eras else None
            self.flying.append(Frame(frontend.name, router, frames.get(router, []), call))

    # What flies.

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), fate=st.sampled_from(("arrives", "arrives", "twice", "lost")))
    def deliver(self, data: st.DataObject, fate: str) -> None:
        one = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        if fate == "twice":
            self.flying.append(one)
        if fate != "lost":
            self.arrive(one)

    def arrive(self, one: Frame | Reply) -> None:
        if isinstance(one, Reply):
            frontend = self.frontends.get(one.frontend)
            if frontend is None:
                return
            if isinstance(one.content, LimitGrant):
                frontend.limiter.receive(one.router, one.content, self.now)
            else:
                frontend.limiter.hear_era(one.router, one.content, self.now)
            self.retry(frontend)
            return
        router = self.routers.get(one.router)
        if router is None:
            return
        for ask in one.asks:
            answer = router.owner.answer(one.frontend, ask, self.now)
            if answer is not None:
                self.flying.append(Reply(one.frontend, one.router, answer))
        roll_call = router.owner.roll_call
        if one.roll_call is not None and roll_call.heard(one.frontend, *one.roll_call):
            self.flying.append(Reply(one.frontend, one.router, roll_call.era))
        self.push(router)

    def push(self, router: Router) -> None:
        for frontend, answer in router.owner.take_pushed():
            self.flying.append(Reply(frontend, router.name, answer))

    def exchange(self) -> None:
        """Bring everything where it goes, and what comes of it, for a while."""
        for _ in range(6):
            for frontend in self.frontends.values():
                self.flush(frontend)
            flying, self.flying = self.flying, []
            for one in flying:
                self.arrive(one)
            for router in self.routers.values():
                self.read(router)
                router.owner.serve(self.now)
                self.push(router)

    # Routers.

    def read(self, router: Router) -> None:
        for limit_id in router.ledger.unread(10):
            router.ledger.was_read(limit_id, self.etcd.get(limit_id))

    @rule(data=st.data(), writes=st.booleans())
    def reach_etcd(self, data: st.DataObject, writes: bool) -> None:
        if self.routers:
            router = data.draw(st.sampled_from(list(self.routers.values())))
            self.read(router)
            if writes:
                self.write(router)
            router.owner.serve(self.now)
            self.push(router)

    def write(self, router: Router) -> None:
        for write in router.ledger.unwritten(10):
            if self.etcd.get(write.limit_id) == write.known:
                self.etcd[write.limit_id] = write.value
                router.ledger.accepted(write)
            else:
                router.ledger.refused(write, self.etcd.get(write.limit_id), self.now)

    @precondition(lambda self: len(self.routers) < 3)
    @rule()
    def add_router(self) -> None:
        self.start_router()

    @precondition(lambda self: self.routers)
    @rule(data=st.data())
    def kill_router(self, data: st.DataObject) -> None:
        del self.routers[data.draw(st.sampled_from(sorted(self.routers)))]
        self.changed()

    @rule(data=st.data())
    def lose_call(self, data: st.DataObject) -> None:
        """What is on the way between a router and a frontend is lost, and the call opened anew."""
        frontend = data.draw(st.sampled_from(list(self.frontends)))
        for router in self.routers:
            self.flying = [
                one for one in self.flying if (one.frontend, one.router) != (frontend, router)
            ]
            self.frontends[frontend].limiter.connected(router)

    @rule(seconds=st.sampled_from((0.001, 0.1, 0.3, 2.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for router in self.routers.values():
            router.owner.serve(self.now)
            self.push(router)

    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        frontend = data.draw(st.sampled_from(list(self.frontends.values())))
        frontend.limiter.tick(self.now)
        self.retry(frontend)

    @precondition(lambda self: self.routers)
    @rule(data=st.data())
    def take_for_dead(self, data: st.DataObject) -> None:
        """A frontend's call was closed for long; it lives all the same."""
        router = data.draw(st.sampled_from(list(self.routers.values())))
        router.owner.drop(data.draw(st.sampled_from(list(self.frontends))))

    @precondition(lambda self: self.deaths < 2)
    @rule(data=st.data())
    def kill_frontend(self, data: st.DataObject) -> None:
        """What it was charged stays charged, its requests that ran among it."""
        self.deaths += 1
        self.settle_down()
        name = data.draw(st.sampled_from(sorted(self.frontends)))
        gone = self.frontends.pop(name)
        self.flying = [one for one in self.flying if one.frontend != name]
        for router in self.routers.values():
            router.owner.drop(name)
        self.dead += Counter(gone.charged)
        self.spent += gone.spent
        self.start_frontend()
        self.see(list(self.frontends)[-1])

    # What must hold.

    @invariant()
    def never_above(self) -> None:
        for subject, amount in BUDGETS.items():
            charged = sum(one.charged[subject] for one in self.frontends.values())
            assert charged + self.dead[subject] <= amount, subject

    def settle_down(self) -> None:
        if not self.routers:
            self.start_router()
        for frontend in self.frontends:
            self.see(frontend)
        for _ in range(30):
            self.now += 0.3
            for frontend in self.frontends.values():
                frontend.limiter.tick(self.now)
                self.retry(frontend)
            self.exchange()
            for router in self.routers.values():
                self.write(router)

    def teardown(self) -> None:
        for frontend in self.frontends.values():
            for hold in frontend.waiting:
                hold.settle(0)
            frontend.waiting.clear()
            for reservation in frontend.running:
                assert reservation.hold is not None
                frontend.spent += reservation.hold.cost
                reservation.settle(1, reservation.hold.cost)
            frontend.running.clear()
        self.now += 6.0  # who was deposed takes part again
        self.settle_down()
        spent = sum(one.spent for one in self.frontends.values())
        charged = {subject: spent + self.dead[subject] for subject in BUDGETS}
        accounts = {
            limit_id: account
            for router in self.routers.values()
            for limit_id, account in router.owner.accounts.items()
        }
        for subject, limit_id in IDS.items():
            if limit_id in accounts:
                assert accounts[limit_id].charged == charged[subject], subject
                record = accounts[limit_id].record("", ())
                assert record.settled == spent + self.spent
        rest = min(amount - charged[subject] for subject, amount in BUDGETS.items())
        if rest:
            frontend = next(iter(self.frontends.values()))
            hold = frontend.set.hold(rest)
            assert hold is not None
            if self.attempt(frontend, hold):
                frontend.waiting.append(hold)
            for _ in range(4):
                self.exchange()
            assert [one.hold for one in frontend.running] == [hold]


def test_never_above_and_nothing_is_lost() -> None:
    case = AnyOrder.TestCase
    case.settings = settings(max_examples=examples(16), stateful_step_count=50, deadline=None)
    case("runTest").runTest()


def test_a_grant_that_never_arrived_is_not_lost() -> None:
    case = AnyOrder()
    frontend = next(iter(case.frontends.values()))
    hold = frontend.set.hold(1000)
    assert hold is not None
    assert case.attempt(frontend, hold), "the owner is asked first"
    case.exchange()
    case.now += 0.3
    frontend.limiter.tick(case.now)
    case.flush(frontend)
    for one in case.flying:
        if isinstance(one, Frame):
            case.arrive(one)
    case.flying.clear()  # the grants
    hold.settle(0)  # the client is gone
    for router in case.routers.values():
        router.owner.drop(frontend.name)
    case.teardown()  # compares what is charged with what was spent
