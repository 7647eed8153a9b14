"""Where requests for many adapters are placed: `python -m bench.router.adapters`.

Simulated workers with slots for few of many adapters, and production's fleet and placement. A
request's adapter follows Zipf's law, arrivals are a Poisson process. A worker loads one adapter at
a time, next to the prompts that it computes one after the other; the adapter used longest ago makes
room, and one that a stream uses stays, as on workers. Three policies:

    baton          production's, which adds the time of a load to a worker's queue
    least load     production's, not told which adapters are in memory
    resident only  production's, only among workers with the adapter in memory, if there are any

Prints loads per request, and the time to first token.

    python -m bench.router.adapters [--adapters 200] [--workers 4] [--slots 20] [--load .3]
        [--utilization .6] [--requests 20000]
"""

import argparse
import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from bench.harness import cli
from bench.harness.table import Table
from services.router.policy.placement_service import PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable
from simulator.model.events import EventLoop

POLICIES = ("baton", "least load", "resident only")
LAYOUT = b"L" * 16
TOKENS_PER_SECOND = 5000.0
PROMPT_TOKENS = 750
STREAM_SECONDS = 4.0
PAGES = 1 << 20
_SESSION = 1
_WARM = 0.1
"""Share of the requests, from the first one, that is not counted."""


class Asked:
    """A request."""

    def __init__(self, number: int, adapter: int, arrival: float) -> None:
        self.number = number
        self.adapter = adapter
        self.arrival = arrival
        self.first_token = 0.0
        self.ticket = ""

    @property
    def digest(self) -> bytes:
        return self.adapter.to_bytes(16, "little")


class AdaptedWorker:
    """A worker with slots; calls `report` after each change.

    Args:
        name: its id.
        cluster: that it is in.
    """

    def __init__(self, name: str, cluster: "AdapterCluster") -> None:
        self.name = name
        self.loads = 0
        self._cluster = cluster
        self._slots: OrderedDict[bytes, int] = OrderedDict()
        """Uses by digest, the one used longest ago first."""
        self._loaded: set[bytes] = set()
        self._waiting: deque[Asked] = deque()
        """Requests whose adapter is not in memory, in order of arrival."""
        self._loading = False
        self._line: deque[Asked] = deque()
        self._tickets: set[str] = set()
        self._computing = False

    @property
    def resident(self) -> list[bytes]:
        """Digests in memory or being loaded."""
        return sorted(self._slots)

    def submit(self, asked: Asked) -> None:
        """Take a request."""
        if asked.digest in self._slots:
            self._use(asked)
        self._waiting.append(asked)
        self._advance()

    def report(self) -> LoadReport:
        """Return the load: what waits for its adapter is not in the engine yet."""
        told = self._cluster.options.policy_name != "least load"
        return LoadReport(
            self.name,
            "1",
            pending_prompt_tokens=len(self._line) * PROMPT_TOKENS,
            free_pages=PAGES,
            total_pages=PAGES,
            prefill_tokens_per_second=TOKENS_PER_SECOND,
            tickets=sorted(self._tickets),
            resident_adapters=self.resident if told else (),
            adapter_slots=self._cluster.options.slots if told else 0,
            adapter_load_seconds=self._cluster.options.load,
        )

    def _use(self, asked: Asked) -> None:
        self._slots[asked.digest] += 1
        self._slots.move_to_end(asked.digest)

    def _advance(self) -> None:
        """Move requests whose adapter is loaded into the line, and begin the next load."""
        loop = self._cluster.loop
        rest: deque[Asked] = deque()
        for asked in self._waiting:
            if asked.digest in self._loaded:
                self._line.append(asked)
                self._tickets.add(asked.ticket)
            else:
                rest.append(asked)
        self._waiting = rest
        if not self._computing and self._line:
            self._computing = True
            loop.at(loop.now + PROMPT_TOKENS / TOKENS_PER_SECOND, self._computed)
        if not self._loading:
            self._begin_load()
        self._cluster.reported(self)

    def _begin_load(self) -> None:
        new = next((one for one in self._waiting if one.digest not in self._slots), None)
        if new is None or not self._make_room():
            return
        digest = new.digest
        self._slots[digest] = sum(one.digest == digest for one in self._waiting)
        self._loading = True
        self.loads += 1
        loop = self._cluster.loop
        loop.at(loop.now + self._cluster.options.load, self._loaded_one, digest)

    def _make_room(self) -> bool:
        if len(self._slots) < self._cluster.options.slots:
            return True
        for digest, uses in self._slots.items():
            if not uses:
                del self._slots[digest]
                self._loaded.discard(digest)
                return True
        return False

    def _loaded_one(self, digest: bytes) -> None:
        self._loading = False
        self._loaded.add(digest)
        self._advance()

    def _computed(self) -> None:
        asked = self._line.popleft()
        loop = self._cluster.loop
        asked.first_token = loop.now
        self._computing = False
        loop.at(loop.now + STREAM_SECONDS, self._ended, asked)
        self._advance()

    def _ended(self, asked: Asked) -> None:
        self._slots[asked.digest] -= 1
        self._tickets.discard(asked.ticket)
        self._cluster.ended(asked)
        self._advance()


class AdapterCluster:
    """Workers and a router in simulated time.

    Args:
        options: of the command line, with `policy_name`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.loop = EventLoop()
        self._fleet = Fleet(PrefixIndex(), TicketTable("simulated"))
        self._fleet.set_layouts([ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=65_536)])
        self._placements = PlacementService(self._fleet)
        self.workers = {f"w{n}": AdaptedWorker(f"w{n}", self) for n in range(options.workers)}
        digests = (number.to_bytes(16, "little") for number in range(options.adapters))
        served = frozenset((digest.hex(), digest) for digest in digests)
        for name, worker in self.workers.items():
            state = InstanceState(
                name, Role.COMBINED, "1", f"{name}:1", "m", LAYOUT, adapters=served
            )
            self._fleet.put(state)
            self.reported(worker)

    def reported(self, worker: AdaptedWorker) -> None:
        """Pass a worker's report to the router."""
        self._fleet.apply_report(worker.report(), self.loop.now)

    def ended(self, asked: Asked) -> None:
        """Return a request's ticket."""
        self._placements.return_tickets(_SESSION, [asked.ticket])

    def arrive(self, asked: Asked) -> None:
        """Place a request."""
        excluded: frozenset[str] = frozenset()
        if self.options.policy_name == "resident only":
            have = {one.name for one in self.workers.values() if asked.digest in one.resident}
            excluded = frozenset(self.workers.keys() - have) if have else excluded
        request = PlacementRequest(
            "m",
            PROMPT_TOKENS,
            128,
            excluded=excluded,
            adapter=(asked.digest.hex(), asked.digest),
            seed=asked.number * 0x9E3779B1 & 0xFFFFFFFF,
        )
        placed = self._placements.place(request, _SESSION, self.loop.now)
        asked.ticket = placed.ticket
        self.workers[placed.decision.decode_worker.id].submit(asked)


def _requests(options: argparse.Namespace) -> list[Asked]:
    draw = random.Random(options.seed)
    weights = list(accumulate(1 / rank**options.skew for rank in range(1, options.adapters + 1)))
    rate = options.utilization * options.workers * TOKENS_PER_SECOND / PROMPT_TOKENS
    now, found = 0.0, []
    for number in range(options.requests):
        now += draw.expovariate(rate)
        (adapter,) = draw.choices(range(options.adapters), cum_weights=weights)
        found.append(Asked(number, adapter, now))
    return found


def measure(options: argparse.Namespace) -> Sequence[dict[str, Any]]:
    """Print a line per policy."""
    table = Table(
        ("policy", "<14"), ("loads per request", "17.3f"), ("TTFT p50 s", "10.3f"), ("p99", "6.3f")
    )
    found = []
    for policy in POLICIES:
        options.policy_name = policy
        cluster, requests = AdapterCluster(options), _requests(options)
        for asked in requests:
            cluster.loop.at(asked.arrival, cluster.arrive, asked)
        cluster.loop.run()
        counted = requests[int(len(requests) * _WARM) :]
        times = sorted(one.first_token - one.arrival for one in counted)
        loads = sum(one.loads for one in cluster.workers.values()) / len(requests)
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        table.row(policy, loads, p50, p99)
        found.append({"policy": policy, "loads": loads, "p50": p50, "p99": p99})
    return found


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adapters", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--load", type=float, default=0.3, help="seconds to load an adapter")
    parser.add_argument("--skew", type=float, default=1.0, help="Zipf's exponent")
    parser.add_argument("--utilization", type=float, default=0.6, help="of the workers, 0 to 1")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)


if __name__ == "__main__":
    cli.main(measure, __doc__, _arguments, smallest="--requests 300 --adapters 30 --slots 5")
