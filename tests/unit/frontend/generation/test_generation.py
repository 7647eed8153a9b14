"""One request from placement to end, with a scripted worker and no network."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2, worker_pb2
from baton.request.stream_events import ChoiceFinished, Delta, Event, Finished, Started
from baton.settings import FrontendLimits
from baton.telemetry.tracing import UNTRACED
from baton.usage.path import RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.assigned import placements
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.generation import Generation, GenerationSetup
from services.frontend.generation.worker_generation import WorkerGeneration
from services.frontend.placement.placement import Placement
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.connection import ConnectionLostError
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import StreamLost
from tests.support.clock import within
from tests.support.wait import eventually

A = 64
LIMITS = FrontendLimits()
LENGTH = common_pb2.FINISH_REASON_LENGTH


MAX_PLACEMENTS = 3


class ScriptedConnection:
    """A worker's connection that keeps what it is sent."""

    def __init__(self, instance: str, stream_ids: "itertools.count[int]") -> None:
        self.target = router_pb2.Target(instance_id=instance)
        self.lost = False
        self.starts: list[worker_pb2.Start] = []
        self.buffers: dict[int, EventBuffer] = {}
        self._stream_ids = stream_ids
        self.can_pause = True
        self.frames: list[worker_pb2.FrameToWorker] = []

    def send(self, frame: worker_pb2.FrameToWorker) -> None:
        self.frames.append(frame)

    def start(self, start: worker_pb2.Start, buffer: EventBuffer) -> int:
        if self.lost:
            raise ConnectionLostError
        start.stream_id = next(self._stream_ids)
        self.starts.append(start)
        self.buffers[start.stream_id] = buffer
        return start.stream_id

    def release(self, stream_id: int) -> None:
        self.buffers.pop(stream_id, None)

    def say(self, token_ids: list[int], position: int) -> None:
        """Give tokens of the one stream that is open."""
        ((stream_id, buffer),) = self.buffers.items()
        buffer.put_tokens(stream_id, 0, position, token_ids, [])


class Cluster:
    """A pool of connections, and placements on d0, or on d1 where that is excluded."""

    def __init__(self) -> None:
        stream_ids = itertools.count(1)
        self.workers = {name: ScriptedConnection(name, stream_ids) for name in ("d0", "d1")}
        self.excluded: list[set[str]] = []
        self.choices: list[list[int]] = []
        """Of each placement, the tokens that the choices have which are to be decoded."""
        self.refusals = 0
        """Placements that are refused for want of room."""
        self.died = True
        """Of workers whose connections broke."""

    def find_out_if_died(self, _: Any, tell: Callable[[bool], None]) -> None:
        asyncio.get_running_loop().call_soon(tell, self.died)

    def get(self, target: router_pb2.Target) -> ScriptedConnection:
        return self.workers[target.instance_id]

    async def find(
        self, *_: Any, attempt: int, excluded: Any, outputs: Sequence[int], **__: Any
    ) -> Placement:
        if self.refusals:
            self.refusals -= 1
            raise BatonError(Reason.OVERLOADED, "the router's queue is full")
        self.excluded.append(set(excluded))
        self.choices.append(list(outputs))
        target = self.workers["d1" if "d0" in excluded else "d0"].target
        return Placement(router_pb2.Placement(decode=target), None, "router", attempt)


class Run:
    """A generation that is followed, and the events that came."""

    def __init__(
        self,
        request: ResolvedRequest,
        cluster: Any,
        seconds: float = 60.0,
        limits: FrontendLimits = LIMITS,
        meter: Any = None,
    ) -> None:
        now, self.waiting = time.monotonic(), WorkerWaitQueue(limits)
        self.suspects = Suspects()
        context = GenerationContext(
            cluster,
            cluster,
            self.waiting,
            self.suspects,
            False,
            None,
            [],
            b"",
            UNTRACED,
            now,
            now + seconds,
            MAX_PLACEMENTS,
            0.02,
            192 * 1024,
        )
        self.events: list[Event] = []
        self.taken: list[list[Event]] = []
        """The same as the sink was given them."""
        self.closed = 0
        self.generation = WorkerGeneration(
            GenerationSetup(request, "chat", UNTRACED, self._close, lambda: meter),
            context,
        )

    def _close(self, _: Generation) -> None:
        self.closed += 1

    def _take(self, events: list[Event]) -> bool:
        self.taken.append(list(events))
        self.events.extend(events)
        return False

    async def to_end(self) -> None:
        try:
            async with within(10.0):
                await self.generation.follow(self._take)
        finally:
            self.generation.close()
            self.generation.close()
            assert self.closed == 1

    @property
    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


RequestFor = Callable[..., ResolvedRequest]


async def turn() -> None:
    """Let tasks go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_connection_lost_before_a_stream_starts_is_a_worker_lost(
    request_for: RequestFor,
) -> None:
    cluster = Cluster()
    cluster.workers["d0"].lost = True
    run = Run(request_for(max_tokens=2), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    assert cluster.excluded == [set(), {"d0"}]
    assert [start.context.attempt for start in cluster.workers["d1"].starts] == [1]
    following.cancel()
    await asyncio.wait([following])
    assert not cluster.workers["d1"].buffers


async def test_missing_tokens_are_asked_of_another_worker(request_for: RequestFor) -> None:
    cluster = Cluster()
    run = Run(request_for(max_tokens=3), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    cluster.workers["d0"].say([A], 0)
    cluster.workers["d0"].say([A], 2)
    await turn()
    assert cluster.excluded == [set(), {"d0"}]
    assert not cluster.workers["d0"].buffers
    (start,) = cluster.workers["d1"].starts
    assert list(start.generate.output_so_far) == [A]
    cluster.workers["d1"].say([A, A], 1)
    finished = worker_pb2.StreamFinished(stream_id=start.stream_id, reasons=[LENGTH])
    cluster.workers["d1"].buffers[start.stream_id].put(finished)
    await following
    assert run.kinds == [Started, Delta, Delta, ChoiceFinished, Finished]


async def test_streams_that_are_handed_over_use_up_no_attempt(request_for: RequestFor) -> None:
    cluster, moves = Cluster(), 2 * MAX_PLACEMENTS
    run = Run(request_for(max_tokens=moves + 1), cluster)
    following = asyncio.create_task(run.to_end())
    worker = cluster.workers["d0"]
    for position in range(moves + 1):
        await turn()
        assert [start.context.attempt for start in worker.starts] == list(range(position + 1))
        start = worker.starts[-1]
        assert list(start.generate.output_so_far) == [A] * position
        worker.say([A], position)
        left = worker_pb2.StreamHandedOver(stream_id=start.stream_id, position=position + 1)
        worker.buffers.pop(start.stream_id).put(left)
    await following
    assert cluster.excluded == [set()] * (moves + 1)
    assert run.kinds == [Started, *[Delta] * (moves + 1), ChoiceFinished, Finished]


async def test_attempts_are_counted_from_the_last_token_on(request_for: RequestFor) -> None:
    cluster, losses = Cluster(), 2 * MAX_PLACEMENTS
    run = Run(request_for(max_tokens=50), cluster)
    following = asyncio.create_task(run.to_end())

    async def lose_next(tokens: int) -> None:
        await turn()
        worker = next(one for one in cluster.workers.values() if one.buffers)
        stream_id, buffer = stream_of(worker)
        worker.say([A] * tokens, len(worker.starts[-1].generate.output_so_far))
        worker.buffers.clear()
        failed = BatonError(Reason.UNAVAILABLE, "busy").to_status()
        buffer.put(worker_pb2.StreamFailed(stream_id=stream_id, status=failed))

    for _ in range(losses):
        await lose_next(1)
    for _ in range(MAX_PLACEMENTS - 1):
        assert not following.done()
        await lose_next(0)
    with pytest.raises(BatonError) as caught:
        await following
    assert caught.value.reason is Reason.UNAVAILABLE
    assert len(cluster.excluded) == losses + MAX_PLACEMENTS - 1


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Place again at once what found no room."""
    monkeypatch.setattr(placements, "FIRST_PAUSE_SECONDS", 1e-4)
    monkeypatch.setattr(placements, "MAX_PAUSE_SECONDS", 1e-3)


def hand_back(worker: ScriptedConnection, stream_id: int) -> None:
    full = BatonError(Reason.OVERLOADED, "the worker's queue is full").to_status()
    failed = worker_pb2.StreamFailed(stream_id=stream_id, status=full)
    worker.buffers.pop(stream_id).put(failed)


@pytest.mark.usefixtures("no_pause")
async def test_what_a_worker_has_no_room_for_is_placed_until_there_is_some(
    request_for: RequestFor,
) -> None:
    cluster, refusals = Cluster(), 3 * MAX_PLACEMENTS
    run = Run(request_for(n=3, max_tokens=1), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    worker = cluster.workers["d0"]
    first, second, third = (start.stream_id for start in worker.starts)
    worker.buffers[second].put_tokens(second, 1, 0, [A], [])
    hand_back(worker, first)
    hand_back(worker, third)
    for count in range(1, refusals + 1):
        await eventually(lambda count=count: len(worker.starts) == 3 + 2 * count)
        assert not following.done()
        assert cluster.choices[-1] == [0, 0], "only what no worker has is placed again"
        again = worker.starts[-2:]
        assert [start.choice for start in again] == [0, 2]
        for start in again:
            if count < refusals:
                hand_back(worker, start.stream_id)
            else:
                buffer = worker.buffers[start.stream_id]
                buffer.put_tokens(start.stream_id, start.choice, 0, [A], [])
    await following
    assert cluster.excluded == [set()] * (refusals + 1), "a full worker is no broken one"
    assert run.kinds.count(ChoiceFinished) == 3
    assert run.generation.finished


@pytest.mark.usefixtures("no_pause")
async def test_a_request_that_was_admitted_waits_where_a_router_has_no_room_for_it_again(
    request_for: RequestFor,
) -> None:
    cluster = Cluster()
    run = Run(request_for(max_tokens=2), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    cluster.workers["d0"].say([A], 0)
    cluster.refusals = 5
    lose(cluster.workers["d0"])
    await eventually(lambda: bool(cluster.workers["d1"].starts))
    assert not cluster.refusals
    cluster.workers["d1"].say([A], 1)
    await following
    assert run.kinds == [Started, Delta, Delta, ChoiceFinished, Finished]


async def test_a_request_that_is_not_admitted_is_refused_at_once(request_for: RequestFor) -> None:
    cluster = Cluster()
    cluster.refusals = 1
    run = Run(request_for(), cluster)
    with pytest.raises(BatonError, match="full") as caught:
        await run.to_end()
    assert caught.value.reason is Reason.OVERLOADED


@pytest.mark.usefixtures("no_pause")
async def test_the_ticket_of_what_found_no_room_is_returned_at_once(
    request_for: RequestFor,
) -> None:
    released: list[int] = []

    class Ticketed(Cluster):
        async def find(self, *args: Any, attempt: int, **options: Any) -> Placement:
            ticket: Any = SimpleNamespace(name="t", release=lambda **_: released.append(attempt))
            found = await super().find(*args, attempt=attempt, **options)
            return replace(found, ticket=ticket)

    cluster = Ticketed()
    run = Run(request_for(n=2, max_tokens=1), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    worker = cluster.workers["d0"]
    hand_back(worker, worker.starts[0].stream_id)
    await eventually(lambda: len(worker.starts) == 3)
    assert released == [], "a stream of it runs"
    hand_back(worker, worker.starts[2].stream_id)
    await eventually(lambda: len(worker.starts) == 4)
    assert released == [1]
    following.cancel()
    await asyncio.wait([following])
    assert sorted(released) == [0, 1, 2]


@pytest.mark.parametrize("paused", [False, True])
async def test_workers_that_do_not_report_are_waited_for_only_a_moment(
    request_for: RequestFor, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    cluster = Cluster()
    run = Run(request_for(max_tokens=1), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    cluster.workers["d0"].say([A], 0)
    assert run.kinds == [Started, Delta, ChoiceFinished]
    assert cluster.workers["d0"].buffers  # it may still report
    if paused:  # the sink is told nothing, until it can take more
        run.generation.buffer.pause()
        await asyncio.wait([following], timeout=0.1)
        assert run.kinds == [Started, Delta, ChoiceFinished]
        run.generation.buffer.resume()
    await following
    assert run.kinds == [Started, Delta, ChoiceFinished, Finished]
    assert run.generation.finished
    assert not cluster.workers["d0"].buffers


@pytest.mark.parametrize("can_pause", [True, False])
async def test_streams_wait_at_their_worker_while_the_client_does_not_read(
    request_for: RequestFor, can_pause: bool
) -> None:
    cluster = Cluster()
    run = Run(request_for(max_tokens=4000), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    worker = cluster.workers["d0"]
    worker.can_pause = can_pause

    def told() -> list[str | None]:
        kinds = [frame.WhichOneof("frame") for frame in worker.frames]
        worker.frames.clear()
        return kinds

    told()
    for round_ in range(2):
        begin = 1500 * round_
        run.generation.buffer.pause()
        for position in range(begin, begin + 1000):
            worker.say([A], position)
        assert told() == []
        for position in range(begin + 1000, begin + 1500):
            worker.say([A], position)
        assert told() == (["pause"] if can_pause else [])
        run.generation.buffer.resume()
        assert told() == (["resume"] if can_pause else [])
    # What ends while it waits is told so as ever.
    run.generation.buffer.pause()
    for position in range(3000, 4000):
        worker.say([A], position)
    run.generation.buffer.resume()
    await following
    assert run.generation.finished
    assert not worker.buffers


async def test_the_deadline_ends_it_and_releases_everything(request_for: RequestFor) -> None:
    cluster = Cluster()
    run = Run(request_for(), cluster, seconds=0.05)
    with pytest.raises(BatonError) as caught:
        await run.to_end()
    assert caught.value.reason is Reason.DEADLINE
    assert cluster.workers["d0"].starts
    assert not cluster.workers["d0"].buffers


async def test_an_end_before_it_is_followed_places_nothing(request_for: RequestFor) -> None:
    cluster = Cluster()
    run = Run(request_for(), cluster)
    run.generation.end(BatonError(Reason.DRAINING, "stopping"))
    with pytest.raises(BatonError, match="stopping"):
        await run.to_end()
    assert not cluster.excluded


async def test_an_end_while_the_router_is_asked_returns_the_placement(
    request_for: RequestFor,
) -> None:
    released: list[bool] = []
    asked = asyncio.Event()

    class Ticket:
        name = "t"

        def release(self, *, finished: bool, used: router_pb2.TicketUsage) -> None:
            assert not finished
            assert used == router_pb2.TicketUsage(), "its work never began"
            released.append(True)

    class SlowCluster(Cluster):
        async def find(self, *_: Any, **__: Any) -> Placement:
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            ticket: Any = Ticket()  # it crossed with the cancelling
            return Placement(router_pb2.Placement(), ticket, "router", 0)

    cluster = SlowCluster()
    run = Run(request_for(), cluster)
    following = asyncio.create_task(run.to_end())
    await asked.wait()
    run.generation.end(BatonError(Reason.DRAINING, "stopping"))
    with pytest.raises(BatonError, match="stopping"):
        await following
    await turn()
    assert released
    assert not any(worker.starts for worker in cluster.workers.values())


class Deserted(Cluster):
    """A cluster whose workers may all be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = True
        self.attempts: list[int] = []

    async def find(self, *args: Any, attempt: int, **options: Any) -> Placement:
        if self.away:
            raise BatonError(Reason.NO_WORKER, "no worker")
        self.attempts.append(attempt)
        return await super().find(*args, attempt=attempt, **options)


async def test_it_waits_for_a_worker_as_often_as_there_is_none(request_for: RequestFor) -> None:
    cluster = Deserted()
    run = Run(request_for(max_tokens=6), cluster)
    following = asyncio.create_task(run.to_end())
    for number in range(3):
        await turn()
        for _ in range(5):  # each time it finds that the worker is gone again
            assert len(run.waiting) == 1
            run.waiting.wake(lambda model: model == "m")
            await turn()
        cluster.away = False
        run.waiting.wake(lambda model: model == "m")
        await turn()
        assert len(run.waiting) == 0
        assert cluster.attempts == list(range(number + 1))
        worker = next(one for one in cluster.workers.values() if one.buffers)
        worker.say([A] * 2, 2 * number)
        if number < 2:
            cluster.away = True
            ((stream_id, buffer),) = worker.buffers.items()
            worker.buffers.clear()
            buffer.put(StreamLost(stream_id))
    ((stream_id, buffer),) = worker.buffers.items()
    buffer.put(worker_pb2.StreamFinished(stream_id=stream_id, reasons=[LENGTH]))
    await following
    assert run.kinds == [Started, Delta, Delta, Delta, ChoiceFinished, Finished]


async def test_a_worker_that_comes_back_while_one_is_looked_for_is_asked(
    request_for: RequestFor,
) -> None:
    cluster = Deserted()
    run = Run(request_for(max_tokens=2), cluster)

    def come_back() -> None:
        cluster.away = False
        run.waiting.wake(lambda _: True)

    failing = cluster.find

    async def find(*args: Any, **options: Any) -> Placement:
        # It was there before the request knows that there was none.
        asyncio.get_running_loop().call_soon(come_back)
        return await failing(*args, **options)

    cluster.find = find  # type: ignore[method-assign]
    following = asyncio.create_task(run.to_end())
    await turn()
    assert cluster.attempts == [0]
    following.cancel()
    await asyncio.wait([following])


async def test_a_choice_that_runs_goes_on_while_another_waits(request_for: RequestFor) -> None:
    cluster = Deserted()
    cluster.away = False
    run = Run(request_for(n=2, max_tokens=9), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    first, second = cluster.workers["d0"].buffers
    cluster.away = True
    cluster.workers["d0"].buffers.pop(second).put(StreamLost(second))
    await turn()
    assert len(run.waiting) == 1
    for position in range(9):
        buffer = cluster.workers["d0"].buffers[first]
        buffer.put_tokens(first, 0, position, [A], [])
    assert run.kinds.count(Delta) == 9
    cluster.away = False
    run.waiting.wake(lambda _: True)
    await turn()
    assert [start.choice for start in cluster.workers["d1"].starts] == [1]
    following.cancel()
    await asyncio.wait([following])


@pytest.mark.parametrize("end", ["time", "deadline", "close", "drain", "full"])
async def test_whatever_ends_its_wait_takes_it_out_of_the_queue(
    request_for: RequestFor, end: str
) -> None:
    seconds = {"time": 0.02, "deadline": 60.0}.get(end, 60.0)
    limits = FrontendLimits(wait_for_worker_seconds=seconds, max_waiting=int(end != "full"))
    run = Run(request_for(), Deserted(), 0.02 if end == "deadline" else 60.0, limits)
    following = asyncio.create_task(run.to_end())
    await turn()
    if end in ("close", "drain"):  # the others end by themselves
        assert len(run.waiting) == 1
    if end == "close":
        following.cancel()
    elif end == "drain":
        run.generation.end(BatonError(Reason.DRAINING, "stopping"))
    await asyncio.wait([following])
    assert len(run.waiting) == 0
    if end == "close":
        assert following.cancelled()
        return
    with pytest.raises(BatonError) as caught:
        await following
    reasons = {"deadline": Reason.DEADLINE, "drain": Reason.DRAINING}
    assert caught.value.reason is reasons.get(end, Reason.NO_WORKER)
    assert (caught.value.retry_after is not None) == (end in ("time", "full"))


class Queueing(Cluster):
    """A cluster whose router lets requests wait until `turn` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Event()
        self.asked = 0
        self.left = 0
        """Requests that left before their turn."""

    async def find(self, *args: Any, **options: Any) -> Placement:
        self.asked += 1
        try:
            await self.turn.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        placed = await super().find(*args, **options)
        return replace(placed, queued_seconds=1.5)


@pytest.mark.parametrize("end", ["deadline", "close", "drain"])
async def test_whatever_ends_its_wait_in_the_router_takes_it_out_once(
    request_for: RequestFor, end: str
) -> None:
    cluster = Queueing()
    run = Run(request_for(), cluster, 0.2 if end == "deadline" else 60.0)
    following = asyncio.create_task(run.to_end())
    await turn()
    if end == "close":
        following.cancel()
    elif end == "drain":
        run.generation.end(BatonError(Reason.DRAINING, "stopping"))
    await asyncio.wait([following])
    await turn()
    assert cluster.left == cluster.asked
    assert cluster.asked == 1 or end == "deadline"  # which may pass before the router is asked
    assert run.kinds == []
    assert not any(worker.starts for worker in cluster.workers.values())


async def test_what_waits_in_the_router_is_followed_on_and_says_for_how_long(
    request_for: RequestFor,
) -> None:
    cluster = Queueing()
    run = Run(request_for(max_tokens=1), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    ticks = len(run.taken)
    run.generation.buffer.wake()  # a comment is due that keeps the connection alive
    assert run.taken[ticks:] == [[]]
    cluster.turn.set()
    await turn()
    cluster.workers["d0"].say([A], 0)
    stream_id, buffer = stream_of(cluster.workers["d0"])
    buffer.put(worker_pb2.StreamFinished(stream_id=stream_id, reasons=[LENGTH]))
    await following
    assert run.kinds == [Started, Delta, ChoiceFinished, Finished]
    finished = run.events[-1]
    assert isinstance(finished, Finished)
    assert "1.500 s in the router's queue" in finished.steps[0].detail
    record = RequestRecord("grpc")
    run.generation.add_to(record)
    assert record.queued_seconds == 1.5


async def test_what_a_placement_used_is_told_with_its_ticket(request_for: RequestFor) -> None:
    class Ticket:
        name = "t"

        def release(self, *, finished: bool, used: router_pb2.TicketUsage | None) -> None:
            tickets.append((finished, used))

    tickets: list[tuple[bool, router_pb2.TicketUsage | None]] = []

    class Ticketed(Cluster):
        async def find(self, *args: Any, **options: Any) -> Placement:
            ticket: Any = Ticket()
            return replace(await super().find(*args, **options), ticket=ticket)

    cluster = Ticketed()
    run = Run(request_for(max_tokens=3), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    cluster.workers["d0"].say([A], 0)
    lose(cluster.workers["d0"])
    await turn()
    cluster.workers["d1"].say([A, A], 1)
    stream_id, buffer = stream_of(cluster.workers["d1"])
    usage = common_pb2.Usage(prompt_tokens=9, cached_tokens=4, output_tokens=2)
    buffer.put(worker_pb2.StreamFinished(stream_id=stream_id, reasons=[LENGTH], usage=usage))
    await following
    lost, done = tickets
    assert lost == (False, None), "nobody knows what the lost worker computed"
    finished, used = done
    assert finished
    assert used is not None
    assert 0 < used.first_token_seconds < 1
    used.ClearField("first_token_seconds")
    assert used == router_pb2.TicketUsage(computed_prompt_tokens=5, output_tokens=2)


def stream_of(worker: ScriptedConnection) -> tuple[int, EventBuffer]:
    ((stream_id, buffer),) = worker.buffers.items()
    return stream_id, buffer


def lose(worker: ScriptedConnection) -> None:
    """Let a worker die with its stream."""
    stream_id, buffer = stream_of(worker)
    worker.buffers.clear()
    buffer.put(StreamLost(stream_id))


def say_begun(worker: ScriptedConnection, *, awaits: bool = False) -> None:
    stream_id, buffer = stream_of(worker)
    buffer.put(worker_pb2.Begun(stream_id=stream_id, awaits_acknowledgement=awaits))


@pytest.mark.parametrize(
    ("begun", "tokens", "died", "guilty"),
    [
        (True, 0, True, True),
        (True, 1, True, True),
        (True, 2, True, False),
        (False, 0, True, False),
        (True, 0, False, False),
        (True, 1, False, False),
    ],
)
async def test_a_suspect_is_refused_if_its_worker_dies_before_it_is_proven(
    request_for: RequestFor, begun: bool, tokens: int, died: bool, guilty: bool
) -> None:
    cluster = Cluster()
    cluster.died = died
    request = request_for(max_tokens=50)
    run = Run(request, cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    first, second = cluster.workers["d0"], cluster.workers["d1"]
    first.say([A] * 3, 0)
    lose(first)
    await turn()
    assert [start.suspect for start in (*first.starts, *second.starts)] == [False, True]
    assert run.suspects.check(request)
    if begun:
        say_begun(second)
    if tokens:
        second.say([A] * tokens, 3)
    lose(second)
    await turn()
    if not guilty:
        assert [start.suspect for start in second.starts] == [True, True]
        assert run.suspects.check(request)
        following.cancel()
        await asyncio.wait([following])
        return
    with pytest.raises(BatonError) as caught:
        await following
    assert caught.value.reason is Reason.POISON_REQUEST
    with pytest.raises(BatonError, match="two workers were lost"):
        run.suspects.check(request)


@pytest.mark.parametrize("awaits", [False, True])
async def test_a_worker_that_waits_for_it_is_told_that_begun_is_noted(
    request_for: RequestFor, awaits: bool
) -> None:
    cluster = Cluster()
    run = Run(request_for(max_tokens=50), cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    lose(cluster.workers["d0"])
    await turn()
    worker = cluster.workers["d1"]
    assert [start.acknowledges_begun for start in worker.starts] == [True]
    say_begun(worker, awaits=awaits)
    await turn()
    acknowledged = [frame for frame in worker.frames if frame.HasField("acknowledge_begun")]
    assert len(acknowledged) == awaits
    following.cancel()
    await asyncio.wait([following])


async def test_a_suspect_that_finishes_is_none_any_more(request_for: RequestFor) -> None:
    cluster = Cluster()
    request = request_for(max_tokens=2)
    run = Run(request, cluster)
    following = asyncio.create_task(run.to_end())
    await turn()
    lose(cluster.workers["d0"])
    await turn()
    worker = cluster.workers["d1"]
    say_begun(worker)
    stream_id, buffer = stream_of(worker)
    worker.say([A] * 2, 0)
    buffer.put(worker_pb2.StreamFinished(stream_id=stream_id, reasons=[LENGTH]))
    await following
    assert not run.suspects.check(request)


class Meter:
    """Keeps how a request ended, and writes that when it is told to."""

    recorded = True
    notable = False

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.errors: list[str] = []
        self.written: Callable[[], None] | None = None

    def end(
        self,
        _: Any,
        outcome: str,
        __: int | None,
        ___: RequestPath,
        error: str = "",
        on_written: Callable[[], None] | None = None,
    ) -> None:
        if not self.outcomes:
            self.outcomes.append(outcome)
            self.errors.append(error)
            self.written = on_written


async def said_all(
    request_for: RequestFor, meter: Meter | None = None
) -> "tuple[Run, Meter, asyncio.Task[None]]":
    """A request that has all its output, whose usage is not written yet."""
    cluster, meter = Cluster(), meter or Meter()
    run = Run(request_for(max_tokens=1), cluster, meter=meter)
    following = asyncio.create_task(run.to_end())
    await turn()
    worker = cluster.workers["d0"]
    (start,) = worker.starts
    buffer = worker.buffers[start.stream_id]
    worker.say([A], 0)
    buffer.put(worker_pb2.StreamFinished(stream_id=start.stream_id, reasons=[LENGTH]))
    await turn()
    assert run.kinds == [Started, Delta, ChoiceFinished, Finished][: 3 if meter.recorded else 4]
    assert meter.outcomes == ["ok"]
    return run, meter, following


@pytest.mark.parametrize("paused", [False, True])
async def test_the_end_is_told_once_its_usage_is_written(
    request_for: RequestFor, paused: bool
) -> None:
    run, meter, following = await said_all(request_for)
    if paused:
        run.generation.buffer.pause()
    assert meter.written is not None
    meter.written()
    await turn()
    assert following.done() is not paused
    if paused:
        run.generation.buffer.resume()
    await following
    assert run.kinds == [Started, Delta, ChoiceFinished, Finished]
    assert run.generation.finished
    assert meter.outcomes == ["ok"]


async def test_what_has_all_its_output_ends_well_whoever_ends_it(request_for: RequestFor) -> None:
    run, meter, following = await said_all(request_for)
    run.generation.end(BatonError(Reason.DRAINING, "stopping"))
    assert meter.written is not None
    meter.written()
    await following
    assert run.kinds[-1] is Finished


async def test_a_client_that_leaves_while_usage_is_written_changes_nothing_of_it(
    request_for: RequestFor,
) -> None:
    run, meter, following = await said_all(request_for)
    following.cancel()
    await asyncio.wait([following])
    assert meter.written is not None
    meter.written()
    assert run.kinds == [Started, Delta, ChoiceFinished]
    assert meter.outcomes == ["ok"]


async def test_a_request_that_fails_is_metered_with_its_reason(request_for: RequestFor) -> None:
    meter = Meter()
    run = Run(request_for(), Cluster(), seconds=0.05, meter=meter)
    with pytest.raises(BatonError):
        await run.to_end()
    assert meter.outcomes == ["DEADLINE"]
    assert meter.errors == ["the request exceeded its deadline"]


async def test_what_is_not_recorded_is_metered_and_not_waited_for(request_for: RequestFor) -> None:
    meter = Meter()
    meter.recorded = False
    _, meter, following = await said_all(request_for, meter)
    await following
    assert meter.outcomes == ["ok"]


async def test_a_request_that_never_ran_is_not_metered(request_for: RequestFor) -> None:
    meter = Meter()
    Run(request_for(), Cluster(), meter=meter).generation.close()
    assert meter.outcomes == []
