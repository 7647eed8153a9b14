"""One request from placement to end, with a scripted worker and no network."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2, worker_pb2
from baton.stream_events import ChoiceFinished, Delta, Event, Finished, Started
from baton.v1 import common_pb2
from services.frontend.generation.assignments import GenerationContext
from services.frontend.generation.generation import Generation
from services.frontend.placement.placement import Placement
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.connection import ConnectionLostError
from services.frontend.workers.event_buffer import EventBuffer

A = 64
LENGTH = common_pb2.FINISH_REASON_LENGTH


class ScriptedConnection:
    """A worker's connection that keeps what it is sent."""

    def __init__(self, instance: str, stream_ids: "itertools.count[int]") -> None:
        self.target = router_pb2.Target(instance_id=instance)
        self.lost = False
        self.starts: list[worker_pb2.Start] = []
        self.buffers: dict[int, EventBuffer] = {}
        self._stream_ids = stream_ids

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

    def get(self, target: router_pb2.Target) -> ScriptedConnection:
        return self.workers[target.instance_id]

    async def find(self, *_: Any, attempt: int, excluded: Any, output_tokens: int) -> Placement:
        del output_tokens
        self.excluded.append(set(excluded))
        target = self.workers["d1" if "d0" in excluded else "d0"].target
        return Placement(router_pb2.Placement(decode=target), None, "router", attempt)


class Run:
    """A generation that is followed, and the events that came."""

    def __init__(self, request: ResolvedRequest, cluster: Any, seconds: float = 60.0) -> None:
        now = time.monotonic()
        context = GenerationContext(
            cluster, cluster, [], b"", Context(), now, now + seconds, 3, 0.02, 192 * 1024
        )
        self.events: list[Event] = []
        self.closed = 0
        self.generation = Generation(request, context, "chat", trace.INVALID_SPAN, self._close)

    def _close(self, _: Generation) -> None:
        self.closed += 1

    def _take(self, events: list[Event]) -> bool:
        self.events.extend(events)
        return False

    async def to_end(self) -> None:
        try:
            async with asyncio.timeout(10.0):
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
    for _ in range(5):
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

    class Ticket:
        name = "t"

        def release(self) -> None:
            released.append(True)

    class SlowCluster(Cluster):
        async def find(self, *_: Any, **__: Any) -> Placement:
            run.generation.end(BatonError(Reason.DRAINING, "stopping"))
            ticket: Any = Ticket()
            return Placement(router_pb2.Placement(), ticket, "router", 0)

    cluster = SlowCluster()
    run = Run(request_for(), cluster)
    with pytest.raises(BatonError, match="stopping"):
        await run.to_end()
    assert released
    assert not any(worker.starts for worker in cluster.workers.values())
