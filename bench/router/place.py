"""Placements per second of one router.

8 workers (4 prefill and 4 decode, or 8 combined) or 64, a store for every four, prompts of 64
blocks of which about 48 are stored, an index of 100,000 blocks. `placement` calls the placement
alone, starting from the query; `queue` uses the queue, where no request waits; `pure` is all that
the service does with a query. `stream` sends queries to a server in another process over one Place
stream, as a frontend does, with a number of queries in flight; its placements per second of CPU are
the server's. The first three ways take turns, so that a busy machine slows them alike. The best
round of 200 placements, or second of a stream, is printed next to the mean, as it is more reliable
on a busy machine.

    python -m bench.router.place [--seconds 3] [--fleets "32 prefill + 32 decode"] [--json FILE]
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.rpc.channel.channel import Channel
from baton.rpc.protocol import hello
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from bench.harness import cli
from bench.harness.child import helper
from bench.harness.machine import cpu_seconds
from bench.harness.table import Table
from bench.router.fleet import CHAINS, FLEETS, NO_GATE, Roles, chains, fleet, query
from services.router.admission.controller import AdmissionController
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.queries import request_from_proto, waiting_from_proto
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.placement_service import PlacementService

ROUND = 200
"""Placements in one way before the next way's turn."""
MAX_FRAMES = 64
"""Frames per message, as frontends send them."""
WARM_UP_ROUNDS = 2
WARM_UP_SECONDS = 0.5
WINDOW_SECONDS = 1.0
"""Windows of which the best is printed: CPU time is counted in hundredths of a second."""


class NullAsker:
    """A session that keeps the last frame."""

    number = 1

    def frame(self) -> router_pb2.FrameFromRouter:
        self.told = router_pb2.FrameFromRouter()
        return self.told

    def flush(self) -> None:
        """Do nothing: nothing is sent."""

    def beat(self) -> None:
        """Do nothing: nothing is sent."""

    def answered(self, correlation_id: int) -> None:
        """Do nothing: no query waits."""

    def tell_superseded(self, execution: int) -> None:
        """Do nothing: no execution is claimed."""


Place = Callable[[router_pb2.PlaceQuery], None]


def placement(roles: Roles) -> Place:
    """Return a function that places, and returns the ticket."""
    placements = PlacementService(fleet(roles), scorer=choose_scorer().taken)

    def place(asked: router_pb2.PlaceQuery) -> None:
        placed = placements.place(request_from_proto(asked), 1, time.monotonic())
        placements.return_tickets(1, [placed.ticket])

    return place


def queue(roles: Roles) -> Place:
    """Return a function that places through the queue, and returns the ticket."""
    controller = AdmissionController(
        PlacementService(fleet(roles), scorer=choose_scorer().taken), lambda *_: None, NO_GATE
    )

    def place(asked: router_pb2.PlaceQuery) -> None:
        now, number = time.monotonic(), controller.next_number()
        waiting = waiting_from_proto(asked, number, 1, lambda _: (0, 1.0), now)
        admitted = controller.submit(waiting, now)
        assert admitted is not None
        controller.return_tickets(1, [admitted.placed.ticket], {})

    return place


def pure(roles: Roles) -> Place:
    """Return a function that answers a query, and returns its ticket."""
    dispatcher = QueryDispatcher(
        PlacementService(fleet(roles), scorer=choose_scorer().taken), NO_GATE
    )
    asker = NullAsker()
    dispatcher.open_session(asker)

    def place(asked: router_pb2.PlaceQuery) -> None:
        dispatcher.ask(asker, asked)
        dispatcher.return_tickets(1, [asker.told.placement.ticket], (), {})

    return place


class Rate(NamedTuple):
    """The speed of placements."""

    per_second: float
    median_seconds: float
    """Median time to a response."""
    per_cpu_second: float
    """Placements per CPU second of the placing process, as on an otherwise idle core."""
    best_per_cpu_second: float
    """The same in the best round: other programs on a busy machine make CPU time less effective."""


def rates(ways: Mapping[str, Place], seconds: float) -> dict[str, Rate]:
    """Return placements per second of this process, for each way.

    Args:
        ways: ways to place, each of which returns its ticket.
        seconds: duration per way.
    """
    queries = [query(number, chain) for number, chain in enumerate(chains()[:ROUND])]
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    ends = time.perf_counter() + seconds * len(ways)
    warm = False
    while not warm or time.perf_counter() < ends:
        for name, place in ways.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            for asked in queries:
                place(asked)
            clock, cpu = time.perf_counter() - began, time.process_time() - began_cpu
            spent[name].append((clock, cpu))
        if not warm and len(spent[name]) == WARM_UP_ROUNDS:
            warm, spent = True, {name: [] for name in ways}
    found = {}
    for name, rounds in spent.items():
        clocks, cpus = [clock for clock, _ in rounds], [cpu for _, cpu in rounds]
        placed = ROUND * len(rounds)
        found[name] = Rate(
            placed / sum(clocks),
            statistics.median(clocks) / ROUND,
            placed / sum(cpus),
            ROUND / min(cpus),
        )
    return found


class _Frontend:
    """Sends queries over one stream, as frontends do: one message per turn of the loop.

    Args:
        channel: a channel to the server.
        in_flight: number of open queries.
    """

    def __init__(self, channel: Channel, in_flight: int) -> None:
        self._numbers = itertools.count()
        self._asked_at: dict[int, float] = {}
        self._messages = [query(number, chain) for number, chain in enumerate(chains())]
        self._returns: list[str] = []
        self.waits: list[float] = []
        queue: SendQueue[int, router_pb2.PlaceRequest] = SendQueue(self._pack)
        stub = channel.stub(RouterServiceStub)
        self._call: ClientStream[int, router_pb2.PlaceResponse] = ClientStream(stub.Place(), queue)
        self._greeted = False
        for _ in range(in_flight):
            self._call.send(next(self._numbers))
        self._call.start_reader(self._receive, lambda _: None)

    def close(self) -> None:
        """End the call."""
        self._call.close()

    def _pack(self, frames: deque[int]) -> router_pb2.PlaceRequest:
        message = router_pb2.PlaceRequest()
        if not self._greeted:
            self._greeted = True
            message.frames.add().hello.CopyFrom(hello())
        if self._returns:
            message.frames.add().return_tickets.tickets.extend(self._returns)
            self._returns = []
        now = time.perf_counter()
        while frames and len(message.frames) < MAX_FRAMES:
            number = frames.popleft()
            self._asked_at[number] = now
            asked = message.frames.add().query
            asked.CopyFrom(self._messages[number % CHAINS])
            asked.correlation_id = number
        return message

    def _receive(self, response: router_pb2.PlaceResponse) -> None:
        now = time.perf_counter()
        for answer in response.frames:
            if answer.HasField("placement"):
                self.waits.append(now - self._asked_at.pop(answer.placement.correlation_id))
                self._returns.append(answer.placement.ticket)
                self._call.send(next(self._numbers))


async def ask(address: str, pid: int, in_flight: int, seconds: float) -> Rate:
    """Send queries to a server over one stream.

    Args:
        address: the server's address.
        pid: the pid of its process.
        in_flight: number of open queries.
        seconds: duration.
    """
    async with Channel(address) as channel:
        frontend = _Frontend(channel, in_flight)
        waits: list[float] = []
        of_cpu = []
        try:
            await asyncio.sleep(WARM_UP_SECONDS)
            began, began_cpu = time.perf_counter(), cpu_seconds(pid)
            while (left := began + seconds - time.perf_counter()) > 0:
                window_cpu = cpu_seconds(pid)
                frontend.waits.clear()
                await asyncio.sleep(min(WINDOW_SECONDS, left))
                window_cpu = cpu_seconds(pid) - window_cpu
                waits += frontend.waits
                if left >= WINDOW_SECONDS:
                    of_cpu.append(len(frontend.waits) / window_cpu)
            cpu, took = cpu_seconds(pid) - began_cpu, time.perf_counter() - began
            placed = len(waits)
            return Rate(
                placed / took,
                statistics.median(waits),
                placed / cpu,
                max(of_cpu, default=placed / cpu),
            )
        finally:
            frontend.close()


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    table = Table(
        ("fleet", "<22"),
        ("how", "<26"),
        ("placements/s", "12,.0f"),
        ("median ms", "9.3f"),
        ("per CPU s", "9,.0f"),
        ("best", "9,.0f"),
    )

    def note(fleet: str, how: str, rate: Rate) -> None:
        table.row(
            fleet,
            how,
            rate.per_second,
            rate.median_seconds * 1e3,
            rate.per_cpu_second,
            rate.best_per_cpu_second,
        )
        results.append({"fleet": fleet, "how": how, **rate._asdict()})

    for name, roles in ((name, FLEETS[name]) for name in options.fleets):
        ways = {"placement": placement(roles), "queue": queue(roles), "pure": pure(roles)}
        for how, rate in rates(ways, options.seconds).items():
            note(name, how, rate)
        for in_flight in options.in_flight:
            async with helper("bench.router.place_server", name) as server:
                address = await server.receive()
                rate = await ask(address, server.pid, in_flight, options.seconds)
            note(name, f"stream, {in_flight} in flight", rate)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 16, 128], help="queries")
    parser.add_argument("--fleets", nargs="+", choices=FLEETS, default=list(FLEETS))


if __name__ == "__main__":
    cli.main(
        measure, __doc__, arguments, smallest='--seconds 0.5 --in-flight 16 --fleets "8 combined"'
    )
