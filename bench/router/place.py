"""How many requests per second one router places.

8 workers (4 prefill and 4 decode, or 8 combined), 2 stores, prompts of 64 blocks of which about 48
are held, an index of 100,000 blocks. Demand is counted, and no store prefetches. `pure`
calls the placer as the service does; `stream` asks a server in another process over one Place
stream, with so many questions in flight.

    python -m bench.router.place [--seconds 3]
"""

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from baton.internal.v1 import cluster_pb2, kvevents_pb2, router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.internal.v1.worker_pb2 import LoadReport
from baton.kv.keys import pack
from baton.rpc.channels import open_channel
from baton.rpc.server import Server
from baton.settings import GrpcSettings
from baton.telemetry import logs
from services.router.api.placer import Placer, Replication
from services.router.api.service import SERVICE_NAME, RouterService
from services.router.prefix_index.index import PrefixIndex
from services.router.replication.hot_prefixes import HotPrefixTracker
from services.router.state.fleet import Fleet
from services.router.state.tickets import TicketTable

ROOT = Path(__file__).parents[2]
LAYOUT = b"L" * 16
BLOCKS = 64
CHAINS = 2_000
WARM_UP = 200
THRESHOLD = 4
SPLIT: list[cluster_pb2.Role.ValueType] = [cluster_pb2.ROLE_PREFILL] * 4 + [
    cluster_pb2.ROLE_DECODE
] * 4
COMBINED: list[cluster_pb2.Role.ValueType] = [cluster_pb2.ROLE_COMBINED] * 8


def chains() -> list[list[bytes]]:
    draw = random.Random(1)
    return [[draw.randbytes(16) for _ in range(BLOCKS)] for _ in range(CHAINS)]


def fleet(roles: list[cluster_pb2.Role.ValueType]) -> Fleet:
    made = Fleet(PrefixIndex(), TicketTable("bench"))
    made.set_model_cards(
        [cluster_pb2.ModelCard(name="m", layout_id=LAYOUT, block_tokens=16, block_bytes=65_536)]
    )
    for number in range(2):
        made.put(
            cluster_pb2.Instance(id=f"store-{number}", role=cluster_pb2.ROLE_KVSTORE, address="h:1")
        )
    for number, role in enumerate(roles):
        worker = f"worker-{number}"
        made.put(
            cluster_pb2.Instance(
                id=worker,
                role=role,
                address="h:2",
                model="m",
                layout_id=LAYOUT,
                store_id=f"store-{number % 2}",
            )
        )
        made.apply_report(
            LoadReport(
                instance_id=worker,
                running=number % 5,
                pending_prompt_tokens=number * 100,
                free_pages=5_000,
                total_pages=10_000,
                prefill_tokens_per_second=5_000,
                decode_step_seconds=0.02,
                fetch_bytes_per_second=1e9,
            )
        )
    for number, chain in enumerate(chains()):
        near, far = f"store-{number % 2}", f"store-{(number + 1) % 2}"
        made.index.add_blocks(near, kvevents_pb2.TIER_DRAM, chain[:48])
        made.index.add_blocks(far, kvevents_pb2.TIER_DRAM, chain[:16])
        made.index.add_blocks(f"worker-{number % 8}", kvevents_pb2.TIER_ENGINE, chain[:32])
    return made


def query(number: int, chain: list[bytes]) -> router_pb2.PlaceQuery:
    asked = router_pb2.PlaceQuery(
        correlation_id=number,
        chains=[router_pb2.Chain(layout_id=LAYOUT, keys=pack(chain), block_tokens=16)],
        prompt_tokens=BLOCKS * 16 + 5,
        max_tokens=256,
        n=1,
    )
    asked.context.model = "m"
    asked.context.request_id = f"request-{number}"
    return asked


def pure(
    roles: list[cluster_pb2.Role.ValueType], seconds: float, threshold: int
) -> tuple[float, float]:
    """Placements per second of one process, each with its ticket taken and given back.

    Args:
        roles: of the workers.
        seconds: how long to place.
        threshold: placements that make a prefix hot; 0: none are counted. No store prefetches.

    Returns:
        (by the clock, by CPU time: what an otherwise idle core would do).
    """
    where = fleet(roles)
    replication = Replication(HotPrefixTracker(threshold), lambda _: None) if threshold else None
    placer = Placer(where, replication=replication)
    queries = [query(number, chain) for number, chain in enumerate(chains())]

    def place(asked: router_pb2.PlaceQuery) -> None:
        ticket = placer.place(asked, 1, 0.0).ticket
        where.load_changed(where.tickets.return_tickets(1, [ticket]))

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
    """Placements per second over one stream, and the median time to an answer in seconds."""
    async with open_channel(address) as channel:
        stub: Any = RouterServiceStub(channel)
        call = stub.Place()
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


async def serve(roles: list[cluster_pb2.Role.ValueType]) -> None:
    """Serve a fleet until standard input ends; prints the address."""
    logs.configure("bench", "bench", "warning")
    async with Server(GrpcSettings(port=0), "bench") as server:
        replication = Replication(HotPrefixTracker(THRESHOLD), lambda _: None)
        service = RouterService(fleet(roles), replication=replication)
        server.add(service.register, SERVICE_NAME)
        await server.start()
        service.open()
        sys.stdout.write(server.address + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


def stream(name: str, in_flight: int, seconds: float) -> tuple[float, float]:
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.router.place", "--serve", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        return uvloop.run(ask(address, in_flight, seconds))
    finally:
        server.stdin.close()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    fleets = {"4 prefill + 4 decode": SPLIT, "8 combined": COMBINED}
    if options.serve:
        uvloop.run(serve(fleets[options.serve]))
        return
    print(f"{'fleet':<22}{'how':<26}{'placements/s':>14}{'median ms':>11}{'per CPU s':>11}")
    for name, roles in fleets.items():
        for how, threshold in (("pure", THRESHOLD), ("pure, without hot prefixes", 0)):
            rate, of_cpu = pure(roles, options.seconds, threshold)
            print(f"{name:<22}{how:<26}{rate:>14,.0f}{1e3 / rate:>11.3f}{of_cpu:>11,.0f}")
        for in_flight in (1, 16, 128):
            rate, wait = stream(name, in_flight, options.seconds)
            how = f"stream, {in_flight} in flight"
            print(f"{name:<22}{how:<26}{rate:>14,.0f}{wait * 1e3:>11.3f}")


if __name__ == "__main__":
    main()
