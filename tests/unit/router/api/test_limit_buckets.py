"""A router answers for the limits that it owns as long as frontends see it, and no others."""

import asyncio
from typing import Any

import pytest

from baton.cluster.rendezvous import choose
from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.rpc.protocol import hello
from baton.tenancy.limits.budget.roll_call import view_of
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.owner import SETTLE_SECONDS
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject
from baton.tenancy.limits.wire import answer_from_proto, ask_to_proto
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.limits import FORGET_SECONDS, LimitBuckets
from services.router.api.service import RouterService
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.tickets import TicketTable
from tests.support.clock import within
from tests.support.doubles.call import ScriptedCall
from tests.support.wait import eventually

MINE, OTHER = "incarnation-0", "incarnation-1"
BOTH = {MINE: "router-0", OTHER: "router-1"}


def limit_of(owner: str, measure: Measure = Measure.AT_ONCE) -> Limit:
    """Return a limit of 2 that one of two routers owns."""
    ids = (LimitId(Subject.KEY, f"key_{number}", measure) for number in range(100))
    return Limit(next(one for one in ids if choose(one.digest(), BOTH) == owner), 2, 2)


def asks(limit: Limit, need: int = 1, frontend: str = "f0", **sums: int) -> router_pb2.LimitAsks:
    message = router_pb2.LimitAsks(frontend=frontend)
    ask = Ask(limit, **{"term": 1, "base": 0, "granted": 0, "spent": 0, "returned": 0, **sums})
    ask_to_proto(ask._replace(need=need, want=need), message.asks.add())
    return message


class Buckets:
    """A router's buckets on a clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.suspected: list[str] = []
        self.told: list[router_pb2.LimitAnswers] = []
        self.buckets = LimitBuckets(MINE, self.suspected.append, lambda: self.now)

    def ask(self, limit: Limit, **sums: Any) -> LimitGrant | None:
        response = router_pb2.PlaceResponse()
        self.buckets.answer(asks(limit, **sums), response)
        if not response.frames:
            return None
        (answer,) = response.frames[0].limit_answers.answers
        return answer_from_proto(answer)

    def granted(self, limit: Limit, **sums: Any) -> int:
        """Return what was granted in all; 0 also where the answer has to wait."""
        answer = self.ask(limit, **sums)
        return answer.granted if answer is not None else 0


async def test_it_grants_nothing_before_it_sees_itself_in_the_cluster() -> None:
    made = Buckets()
    made.buckets.observe({OTHER: "router-1"})
    made.now += 60
    assert made.granted(limit_of(MINE)) == 0
    made.buckets.observe(BOTH)
    assert made.granted(limit_of(MINE)) == 0
    made.now += SETTLE_SECONDS
    assert made.granted(limit_of(MINE)) == 1


async def test_once_it_drains_others_own_its_limits() -> None:
    made = Buckets()
    made.buckets.observe(BOTH)
    made.now += SETTLE_SECONDS
    assert made.granted(limit_of(MINE)) == 1
    made.buckets.observe({OTHER: "router-1"})
    assert made.granted(limit_of(MINE), term=2) == 0
    made.buckets.observe(BOTH)
    assert made.granted(limit_of(MINE), term=3) == 0, "it is new to them"


async def test_a_router_that_frontends_no_longer_see_is_probed() -> None:
    made = Buckets()
    made.buckets.observe(BOTH)
    made.now += SETTLE_SECONDS
    answer = made.ask(limit_of(OTHER))
    assert answer is not None
    assert (answer.granted, answer.wait > 0) == (0, True)
    assert made.suspected == ["router-1"]
    made.buckets.observe({MINE: "router-0"})
    assert made.granted(limit_of(OTHER)) == 0
    made.now += SETTLE_SECONDS
    assert made.granted(limit_of(OTHER)) == 1
    assert made.suspected == ["router-1"]


async def test_what_waits_is_answered_once_all_frontends_have_answered_the_roll() -> None:
    made, limit = Buckets(), limit_of(MINE, Measure.REQUESTS)
    made.buckets.observe_frontends({"f0", "f1"})
    made.buckets.observe(BOTH)
    made.buckets.connected("f0", made.told.append)
    view = view_of(BOTH)
    first = asks(limit, frontend="f0")
    first.era, first.view, first.tells_recent = 1, view, True
    made.buckets.answer(first, router_pb2.PlaceResponse())
    assert not made.told
    second = asks(limit, need=0, frontend="f1", recent=1)
    second.era, second.view, second.tells_recent = 1, view, True
    made.buckets.answer(second, router_pb2.PlaceResponse())
    ((answer,),) = [[answer_from_proto(one) for one in told.answers] for told in made.told]
    assert answer is not None
    assert (answer.limit_id, answer.granted, answer.left) == (limit.id, 1, 0)


def test_what_a_frontend_holds_is_forgotten_when_it_stays_away() -> None:
    made, limit = Buckets(), limit_of(MINE)
    made.buckets.observe(BOTH)
    made.now += SETTLE_SECONDS
    made.buckets.connected("f0", made.told.append)
    assert made.granted(limit, need=2) == 2
    made.buckets.connected("f0", made.told.append)
    made.buckets.disconnected("f0", made.told.append)
    made.now += FORGET_SECONDS
    made.buckets.sweep()
    assert made.granted(limit, frontend="f1") == 0, "its other call is open"
    made.buckets.disconnected("f0", made.told.append)
    made.now += FORGET_SECONDS - 0.1
    made.buckets.connected("f0", made.told.append)
    made.now += FORGET_SECONDS
    made.buckets.sweep()
    assert made.granted(limit, frontend="f1") == 0, "it came back"
    made.buckets.disconnected("f0", made.told.append)
    made.now += FORGET_SECONDS
    made.buckets.sweep()
    assert made.granted(limit, frontend="f1") == 1


def test_buckets_that_nobody_uses_are_forgotten() -> None:
    made = Buckets()
    made.buckets.observe(BOTH)
    made.now += SETTLE_SECONDS
    for number in range(100):
        limit_id = LimitId(Subject.PROJECT, f"proj_{number}", Measure.AT_ONCE)
        message = router_pb2.LimitAsks(frontend="f0")
        ask_to_proto(Ask(Limit(limit_id, 2, 2), 1, 0, 0, 0, 0, confirm=True), message.asks.add())
        made.buckets.answer(message, router_pb2.PlaceResponse())
    assert len(made.buckets._owner) > 10
    made.buckets.sweep()
    assert len(made.buckets._owner) == 0


class Stream(ScriptedCall):
    """A frontend's call that says hello first."""

    def say_frame(self, **frame: Any) -> None:
        self.say(router_pb2.PlaceRequest(frames=[router_pb2.FrameToRouter(**frame)]))


@pytest.fixture
def made() -> Buckets:
    made = Buckets()
    made.buckets.observe(BOTH)
    made.now += SETTLE_SECONDS
    return made


async def begin(made: Buckets) -> tuple[Stream, "asyncio.Task[None]"]:
    service = RouterService(
        QueryDispatcher(PlacementService(Fleet(PrefixIndex(), TicketTable("r")))),
        buckets=made.buckets,
    )
    service.open()
    stream: Any = Stream()
    call = asyncio.create_task(service.Place(None, stream))
    await eventually(lambda: hasattr(stream, "say"))
    stream.say_frame(hello=hello())
    return stream, call


async def test_a_call_answers_what_is_asked_and_its_end_is_noticed(made: Buckets) -> None:
    stream, call = await begin(made)
    limit = limit_of(MINE)
    stream.say_frame(limit_asks=asks(limit, need=2))
    await eventually(lambda: len(stream.sent) == 2)
    (frame,) = stream.sent[-1].frames
    assert [one.granted for one in frame.limit_answers.answers] == [2]
    stream.half_close()
    async with within(5):
        await call
    made.now += FORGET_SECONDS
    made.buckets.sweep()
    assert made.granted(limit, frontend="f1") == 1


@pytest.mark.parametrize("frontend", ["", "f1"])
async def test_a_call_is_of_one_frontend(made: Buckets, frontend: str) -> None:
    stream, call = await begin(made)
    stream.say_frame(limit_asks=asks(limit_of(MINE)))
    with pytest.raises(BatonError, match=r"limit_asks\.frontend") as refused:
        stream.say_frame(limit_asks=asks(limit_of(MINE), frontend=frontend))
    assert refused.value.reason is Reason.INVALID_FIELD
    call.cancel()
    await asyncio.wait([call])
