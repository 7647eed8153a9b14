"""What a frontend does while a router lets its queries wait; the routers are in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from time import monotonic

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.rpc.server.server import Server
from baton.settings import FrontendPlacement, GrpcSettings
from services.frontend.placement.query_times import QueryTimes
from services.frontend.placement.router_client import PlacementReply, RouterClient
from services.frontend.placement.session import RouterUnavailableError
from tests.support.doubles.queueing_router import QueueingRouter
from tests.support.wait import eventually

TIMES = {"suspect_seconds": 0.1, "answer_seconds": 0.2, "silence_seconds": 0.15}
SETTINGS = FrontendPlacement().model_copy(update=TIMES)


class Routers:
    """Routers, and a client that asks the first of them as long as it is there."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.doubles: list[QueueingRouter] = []
        self.alive: list[cluster_pb2.Instance] = []
        self.suspected: list[str] = []
        self.client: RouterClient

    async def start(self, count: int, settings: FrontendPlacement = SETTINGS) -> None:
        for number in range(count):
            double = QueueingRouter()
            server = Server(GrpcSettings(port=0), f"r{number}", incarnation="one")
            await self._stack.enter_async_context(server)
            server.add(double.register, "baton.internal.v1.RouterService")
            await server.start()
            self.doubles.append(double)
            instance = cluster_pb2.Instance(
                id=f"r{number}", incarnation="one", address=server.address
            )
            self.alive.append(instance)
        self.client = await self._stack.enter_async_context(
            RouterClient(self._usable, self.suspected.append, lambda _: None, settings)
        )

    def _usable(self) -> list[cluster_pb2.Instance]:
        """Return those alive; to a client without a session, the first alone."""
        asked = any(double.sessions for double in self.doubles)
        return list(self.alive) if asked else self.alive[:1]

    def ask(self, name: str, waited: float = 0.0) -> "asyncio.Task[PlacementReply]":
        query = router_pb2.PlaceQuery()
        query.context.request_id = name
        now = monotonic()
        return asyncio.create_task(
            self.client.place(query, QueryTimes(now - waited, now + 60.0, 5.0))
        )

    async def queue(self, *names: str) -> "list[asyncio.Task[PlacementReply]]":
        """Let the first router queue queries."""
        first = self.doubles[0]
        asked = [self.ask(name) for name in names]
        await eventually(lambda: set(names) <= set(first.open))
        for name in names:
            first.let_wait(name)
        return asked


@pytest.fixture
async def routers() -> AsyncIterator[Routers]:
    async with AsyncExitStack() as stack:
        yield Routers(stack)


async def beat(router: QueueingRouter, seconds: float) -> None:
    """Let a router be heard of, more often than it must, for a while."""
    end = monotonic() + seconds
    while monotonic() < end:
        router.beat()
        await asyncio.sleep(0.03)


async def test_answers_come_in_any_order_and_late_while_the_router_is_heard_of(
    routers: Routers,
) -> None:
    await routers.start(2)
    first = routers.doubles[0]
    asked = await routers.queue("a", "b", "c", "d")
    await beat(first, 1.5 * TIMES["answer_seconds"])
    assert not any(one.done() for one in asked)
    for name in ("d", "b", "a"):
        first.place(name)
    first.refuse("c", BatonError(Reason.DEADLINE, "too late for its target"))
    placed = [await asked[at] for at in (0, 1, 3)]
    assert [one.decision.decode.instance_id for one in placed] == ["for-a", "for-b", "for-d"]
    assert all(one.queued_seconds >= TIMES["answer_seconds"] for one in placed)
    with pytest.raises(BatonError, match="too late") as caught:
        await asked[2]
    assert caught.value.reason is Reason.DEADLINE
    assert routers.suspected == []
    assert first.sessions == 1
    for one in placed:
        used = router_pb2.TicketUsage(computed_prompt_tokens=7, output_tokens=3)
        one.ticket.release(used=used)
    await eventually(lambda: not first.tickets)
    assert first.used["t-a"].computed_prompt_tokens == 7


async def test_what_is_answered_at_once_has_not_waited_and_says_its_times(routers: Routers) -> None:
    await routers.start(1)
    asked = routers.ask("a", waited=2.0)
    await eventually(lambda: routers.doubles[0].open)
    (query,) = routers.doubles[0].asked
    assert 2.0 <= query.waited_seconds < 3.0
    assert 59.0 < query.deadline_seconds <= 60.0
    assert 2.0 < query.ttft_target_seconds <= 3.0
    routers.doubles[0].place("a")
    assert (await asked).queued_seconds == 0.0


@pytest.mark.parametrize("how", ["silent", "gives back", "drains", "dies"])
async def test_another_router_is_asked_with_the_time_that_was_waited(
    routers: Routers, how: str
) -> None:
    await routers.start(2)
    first, second = routers.doubles
    asked = await routers.queue("a", "b")
    await beat(first, 0.1)
    if how == "gives back":  # its record does not say yet that it drains
        for name in ("a", "b"):
            first.refuse(name, BatonError(Reason.DRAINING, "this router is stopping"))
    elif how == "drains":
        routers.alive[0].draining = True
        first.end(BatonError(Reason.DRAINING, "this router is stopping"))
    elif how == "dies":
        first.end(BatonError(Reason.INTERNAL, "dead"))
        del routers.alive[0]
    await eventually(lambda: len(second.open) == 2)
    assert all(query.waited_seconds >= 0.1 for query in second.asked)
    assert routers.suspected[:1] == ([] if how == "gives back" else ["r0"])
    assert first.taken_back == []
    for name in ("b", "a"):
        second.let_wait(name)
        second.place(name)
    placed = [await one for one in asked]
    assert [one.router_id for one in placed] == ["r1", "r1"]
    assert all(one.queued_seconds >= 0.1 for one in placed)


async def test_a_router_that_queues_and_is_lost_each_time_is_given_up(routers: Routers) -> None:
    await routers.start(1)
    (asked,) = await routers.queue("a")
    router = routers.doubles[0]
    ends = 0
    while not asked.done():
        if router.open:
            router.let_wait("a")
            router.end(BatonError(Reason.INTERNAL, "dead"))
            ends += 1
        await asyncio.sleep(0.01)
    with pytest.raises(RouterUnavailableError):
        await asked
    assert 2 < ends == router.sessions < 20


def _cancel_first(router: QueueingRouter, cancel: Callable[[], object]) -> None:
    cancel()
    router.place("a")


def _place_first(router: QueueingRouter, cancel: Callable[[], object]) -> None:
    router.place("a")
    cancel()


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("cross", [None, _cancel_first, _place_first])
async def test_a_query_is_taken_back_once_and_what_crosses_with_that_is_returned(
    routers: Routers,
    queued: bool,
    cross: Callable[[QueueingRouter, Callable[[], object]], None] | None,
) -> None:
    await routers.start(1)
    router = routers.doubles[0]
    if queued:
        (asked,) = await routers.queue("a")
        await beat(router, 0.05)
    else:
        asked = routers.ask("a")
        await eventually(lambda: router.open)
    if cross is None:
        asked.cancel()
    else:
        cross(router, asked.cancel)
    await asyncio.wait([asked])
    assert asked.cancelled()
    await eventually(lambda: router.taken_back == ["a"])
    await eventually(lambda: not router.tickets)
    if cross is not None:
        assert router.used["t-a"] == router_pb2.TicketUsage(ticket="t-a"), "it never began"
    # All that was said of the first one is past: the session serves the next.
    following = routers.ask("b")
    await eventually(lambda: "b" in router.open)
    router.place("b")
    assert (await following).decision.decode.instance_id == "for-b"
    assert router.taken_back == ["a"]
    assert router.sessions == 1


async def test_a_query_that_was_answered_in_the_moment_of_its_cancelling_is_returned(
    routers: Routers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await routers.start(1)
    (asked,) = await routers.queue("a")
    router = routers.doubles[0]
    session = routers.client.session_to("one")
    assert session is not None
    receive = session._answer
    monkeypatch.setattr(
        session, "_answer", lambda number, frame: (receive(number, frame), asked.cancel())
    )
    router.place("a")
    await asyncio.wait([asked])
    assert asked.cancelled()
    await eventually(lambda: "t-a" in router.used)
    assert router.taken_back == []
    assert not router.tickets
