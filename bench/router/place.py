"""How many requests per second one router places.

8 workers (4 prefill and 4 decode, or 8 combined), 2 stores, prompts of 64 blocks of which about 48
are held, an index of 100,000 blocks. `pure` calls the placer as the service does; `stream` asks a
server in another process over one Place stream, with so many questions in flight.

    python -m bench.router.place [--seconds 3] [--json FILE]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.rpc.channels import open_channel
from baton.rpc.protocol import hello
from bench.harness import cli
from bench.harness.child import helper
from bench.harness.table import Table
from bench.router.fleet import CHAINS, FLEETS, NO_GATE, Roles, chains, fleet, query
from services.router.api.dispatcher import QueryDispatcher
from services.router.placement.service import PlacementService

WARM_UP = 200


class _Asker:
    """A session that keeps the last frame."""

    number = 1

    def frame(self) -> router_pb2.FrameFromRouter:
        self.told = router_pb2.FrameFromRouter()
        return self.told

    def flush(self) -> None:
        """Nothing is sent."""

    def beat(self) -> None:
        """Nothing is sent."""

    def answered(self, correlation_id: int) -> None:
        """Nothing waits."""

    def tell_superseded(self, execution: int) -> None:
        """Nothing is claimed."""


def pure(roles: Roles, seconds: float) -> tuple[float, float]:
    """Return placements per second of one process, each with its ticket taken and given back.

    Args:
        roles: of the workers.
        seconds: how long to place.

    Returns:
        (by the clock, by CPU time: what an otherwise idle core would do).
    """
    dispatcher = QueryDispatcher(PlacementService(fleet(roles)), NO_GATE)
    asker = _Asker()
    dispatcher.open_session(asker)
    queries = [query(number, chain) for number, chain in enumerate(chains())]

    def place(asked: router_pb2.PlaceQuery) -> None:
        dispatcher.ask(asker, asked)
        dispatcher.return_tickets(1, [asker.told.placement.ticket], (), {})

    return _rate(place, queries, seconds)


def _rate(
    place: Callable[[router_pb2.PlaceQuery], None],
    queries: list[router_pb2.PlaceQuery],
    seconds: float,
) -> tuple[float, float]:
    for asked in queries[:WARM_UP]:
        place(asked)
    placed = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for asked in queries[:WARM_UP]:
            place(asked)
        placed += WARM_UP
    clock, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return placed / clock, placed / cpu


async def ask(address: str, in_flight: int, seconds: float) -> tuple[float, float]:
    """Return placements per second over one stream, and the median time to an answer in seconds."""
    async with open_channel(address) as channel:
        stub: Any = RouterServiceStub(channel)
        call = stub.Place()
        greeting = router_pb2.FrameToRouter(hello=hello())
        await call.write(router_pb2.PlaceRequest(frames=[greeting]))
        asked_at: dict[int, float] = {}
        waits: list[float] = []
        messages = [query(number, chain) for number, chain in enumerate(chains())]

        async def send(number: int) -> None:
            asked = messages[number % CHAINS]
            asked.correlation_id = number
            asked_at[number] = time.perf_counter()
            frame = router_pb2.FrameToRouter(query=asked)
            await call.write(router_pb2.PlaceRequest(frames=[frame]))

        try:
            for number in range(in_flight):
                await send(number)
            began, number = time.perf_counter(), in_flight
            while time.perf_counter() - began < seconds:
                for answer in (await call.read()).frames:
                    if answer.HasField("hello"):
                        continue
                    placement = answer.placement
                    waits.append(time.perf_counter() - asked_at.pop(placement.correlation_id))
                    returned = router_pb2.ReturnTickets(tickets=[placement.ticket])
                    frame = router_pb2.FrameToRouter(return_tickets=returned)
                    await call.write(router_pb2.PlaceRequest(frames=[frame]))
                    await send(number)
                    number += 1
            return len(waits) / (time.perf_counter() - began), sorted(waits)[len(waits) // 2]
        finally:
            call.cancel()


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    table = Table(
        ("fleet", "<22"),
        ("how", "<26"),
        ("placements/s", "12,.0f"),
        ("median ms", "9.3f"),
        ("per CPU s", "9,.0f"),
    )

    def note(fleet: str, how: str, rate: float, wait: float, of_cpu: float | None) -> None:
        table.row(fleet, how, rate, wait * 1e3, "" if of_cpu is None else of_cpu)
        found = {"per_second": rate, "median_seconds": wait, "per_cpu_second": of_cpu}
        results.append({"fleet": fleet, "how": how, **found})

    for name, roles in FLEETS.items():
        rate, of_cpu = pure(roles, options.seconds)
        note(name, "pure", rate, 1 / rate, of_cpu)
        for in_flight in (1, 16, 128):
            async with helper("bench.router.place_server", name) as server:
                rate, wait = await ask(await server.receive(), in_flight, options.seconds)
            note(name, f"stream, {in_flight} in flight", rate, wait, None)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments)
