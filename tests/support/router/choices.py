"""Routers, workers and their engines as pure objects, and requests of several choices between them.

Messages are delayed as the test decides: placements to workers, reports to routers, tickets back to
routers.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from baton.engine.base import QueueFullError, SequenceRequest
from baton.engine.events import Admitted, SequenceEnded
from baton.engine.paged.engine import PagedEngine
from baton.engine.paged.planning.plan import SchedulerLimits
from baton.engine.sim.runner import SimCosts, SimRunner
from baton.errors import BatonError
from baton.request.room import output_reserve
from baton.sampling import SamplingParams
from baton.worker.load import load_report
from baton.worker.stream.reserved import StreamPages
from services.router.admission.controller import AdmissionController, TicketUsage
from services.router.admission.controller import AdmittedRequest as Placement
from services.router.admission.waiting import WaitingRequest
from services.router.policy.placement_service import PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, ModelLayout, Role
from services.router.state.tickets import TicketTable
from services.router.watch.convert import report_from_proto
from tests.support.engine.info import engine_info

BLOCK = 4
SESSION = 1
_ACTIONS = ("step", "step", "receive", "report", "hear", "hear", "again")
ROLES = {"p": Role.PREFILL, "d": Role.DECODE, "c": Role.COMBINED}


@dataclass(eq=False)
class Asked:
    """A client's request and its state."""

    number: int
    prompt: tuple[int, ...]
    max_tokens: int
    choices: int
    tenant: str
    router: "Router"
    missing: set[int] = field(default_factory=set)
    """Choices that no worker has and that are not done."""
    done: set[int] = field(default_factory=set)
    tickets: dict[str, set[int]] = field(default_factory=dict)
    """The tickets, with the sequences that run on each; a prefill counts as well."""
    prefilling: bool = False
    prefilled: bool = False
    """Whether its prompt was computed, or decode workers compute it."""
    placements: int = 0
    error: BatonError | None = None


@dataclass(eq=False)
class Stream:
    """A sequence of a worker, as its load report sees it."""

    asked: Asked
    choice: int
    """-1: the prefill of all choices."""
    ticket: str
    waits_for_prefill: bool
    counted: bool = False
    ended: bool = False
    paused: bool = False
    admitted: Admitted | None = None
    started: bool = False

    @property
    def pages(self) -> StreamPages:
        reserve = output_reserve(self.asked.max_tokens) if self.choice >= 0 else 0
        held = self.admitted is not None
        return StreamPages(self.ticket, len(self.asked.prompt), reserve, held)


class Worker:
    """An engine and its streams."""

    def __init__(self, name: str, pages: int, max_running: int, max_waiting: int) -> None:
        limits = SchedulerLimits(BLOCK, max_running, max_waiting, 64, 64, paused_share=0.0)
        info = engine_info(
            BLOCK,
            context_tokens=pages * BLOCK,
            max_running=max_running,
            max_waiting=max_waiting,
        )
        runner = SimRunner(pages, BLOCK, 100, (), 1, SimCosts(0.0, 0.0, 0.0))
        self.name = name
        self.engine = PagedEngine(info, runner, pages, limits)
        self.streams: dict[int, Stream] = {}
        self.inbox: deque[list[Stream]] = deque()
        """Per placement, the sequences that its frontend starts here."""
        self.refused = 0
        self.most = 0
        """The most sequences that ran or waited at once."""
        self._numbers = 0
        self._stats = self.engine.stats()

    def receive(self) -> list[Stream]:
        """Accept the next placement; return the part for which there is no space."""
        refused = []
        for stream in self.inbox.popleft():
            number, asked = self._numbers, stream.asked
            self._numbers += 1
            prefill = stream.choice < 0
            request = SequenceRequest(
                number,
                b"root",
                asked.prompt,
                SamplingParams(max_tokens=asked.max_tokens, seed=1),
                tuple(range(asked.choices)) if prefill else (stream.choice,),
                prefill_only=prefill,
            )
            try:
                self.engine.add(request)
            except QueueFullError:
                refused.append(stream)
            else:
                self.streams[number] = stream
        self.refused += len(refused)
        return refused

    def step(self) -> list[Stream]:
        """Run a step of the engine; return the streams that ended."""
        ended = []
        for number, stream in self.streams.items():
            ready = not stream.waits_for_prefill or stream.asked.prefilled
            if stream.admitted is not None and not stream.started and ready:
                stream.started = True
                self.engine.start(number, stream.admitted.cached_tokens)
        stats = self.engine.stats()
        self.most = max(self.most, stats.running + stats.waiting)
        for event in self.engine.step():
            if isinstance(event, Admitted):
                self.streams[event.id].admitted = event
            elif isinstance(event, SequenceEnded):
                ended.append(self.streams.pop(event.id))
                self.engine.close(event.id)
        self._stats = self.engine.stats()
        for stream in self.streams.values():
            stream.counted = True
        return ended

    def report(self) -> Any:
        """Return the load as of the last step."""
        core: Any = SimpleNamespace(
            stats=self._stats,
            engine=self.engine,
            streams=self.streams,
            store=SimpleNamespace(leases=0, reservations=0),
            resident=SimpleNamespace(digests=[], slots=0, load_seconds=0.0),
            fetch_bytes_per_second=0.0,
            draining=False,
        )
        return load_report(core, self.name, "")


class Router:
    """A router's decision logic."""

    def __init__(self, name: str, world: "World") -> None:
        self.fleet = Fleet(PrefixIndex(), TicketTable(name))
        self.fleet.set_layouts([ModelLayout("m", b"L" * 16, BLOCK, 64)])
        self.admission = AdmissionController(PlacementService(self.fleet), self._answer)
        self.reports: deque[Any] = deque()
        self.returned: deque[str] = deque()
        self._world = world
        self._waiting: dict[int, Asked] = {}
        for one in world.workers.values():
            store = f"store-{one.name}"
            self.fleet.put(InstanceState(store, Role.KVSTORE))
            role = ROLES[one.name[0]]
            self.fleet.put(
                InstanceState(one.name, role, model="m", layout_id=b"L" * 16, store_id=store)
            )
            self.fleet.apply_report(report_from_proto(one.report()), 0.0)

    def place(self, asked: Asked) -> None:
        """Request a placement for the choices of a request that no worker has."""
        request = PlacementRequest(
            "m",
            len(asked.prompt),
            asked.max_tokens,
            n=len(asked.missing) or asked.choices,  # for the prompt alone
            tenant=asked.tenant,
            seed=asked.number,
            again=asked.placements > 0,
        )
        waiting = WaitingRequest(self.admission.next_number(), request, SESSION, self._world.now)
        self._waiting[waiting.number] = asked
        try:
            admitted = self.admission.submit(waiting, self._world.now)
        except BatonError as error:
            self._answer(waiting, error)
        else:
            if admitted is not None:
                self._answer(waiting, admitted)

    def _answer(self, waiting: WaitingRequest, outcome: Placement | BatonError) -> None:
        self._world.placed(self._waiting.pop(waiting.number), outcome)

    def hear(self) -> None:
        """Process the oldest report or ticket that is on its way."""
        if self.returned:
            ticket = self.returned.popleft()
            self.admission.return_tickets(SESSION, [ticket], {ticket: TicketUsage(1, 1)})
        elif self.reports:
            self.fleet.apply_report(report_from_proto(self.reports.popleft()), self._world.now)


class World:
    """Workers named by their roles, as `p1` or `c2`, and routers.

    Args:
        workers: their names.
        pages: pages of each worker.
        max_running: as in the engine's settings, like the next.
        max_waiting: likewise.
        routers: number of routers; each frontend uses one of them.
        draw: chooses the next event.
    """

    def __init__(
        self,
        workers: Sequence[str],
        pages: int,
        max_running: int,
        max_waiting: int,
        routers: int,
        draw: random.Random,
    ) -> None:
        self.now = 0.0
        self.draw = draw
        self.workers = {name: Worker(name, pages, max_running, max_waiting) for name in workers}
        self.routers = [Router(f"r{number}", self) for number in range(routers)]
        self.asked: list[Asked] = []
        self.again: list[Asked] = []
        """Requests that pause before they are placed again."""

    def ask(self, choices: int, prompt_tokens: int, max_tokens: int, tenant: str) -> Asked:
        """Send a client's request."""
        number = len(self.asked)
        prompt = tuple(self.draw.choices(range(100), k=prompt_tokens))
        router = self.draw.choice(self.routers)
        asked = Asked(number, prompt, max_tokens, choices, tenant, router)
        asked.missing = set(range(choices))
        self.asked.append(asked)
        router.place(asked)
        return asked

    def placed(self, asked: Asked, outcome: Placement | BatonError) -> None:
        """Start the missing choices of a request where a router placed it."""
        if isinstance(outcome, BatonError):
            asked.error = outcome
            return
        asked.placements += 1
        decision, ticket = outcome.placed.decision, outcome.placed.ticket
        prefill = decision.prefill_worker
        asked.tickets[ticket] = running = set(asked.missing)
        if not asked.prefilled and not asked.prefilling:
            if prefill is None:
                asked.prefilled = True
            else:
                asked.prefilling = True
                running.add(-1)
                stream = Stream(asked, -1, ticket, waits_for_prefill=False)
                self.workers[prefill.id].inbox.append([stream])
        if asked.missing:
            self.workers[decision.decode_worker.id].inbox.append(
                [Stream(asked, one, ticket, waits_for_prefill=True) for one in asked.missing]
            )
            asked.missing = set()
        if not running:
            self._return(asked, ticket)

    def act(self) -> None:
        """Make one thing happen, anywhere."""
        self.now += self.draw.choice((0.0, 0.001, 0.02))
        worker = self.draw.choice(list(self.workers.values()))
        router = self.draw.choice(self.routers)
        match self.draw.choice(_ACTIONS):
            case "step":
                self._end(worker.step())
            case "receive" if worker.inbox:
                self._hand_back(worker.receive())
            case "report":
                for one in self.routers:
                    one.reports.append(worker.report())
            case "hear":
                router.hear()
            case "again":
                self._place_again()
        router.admission.advance(self.now)

    def finish(self) -> None:
        """Make everything happen until nothing is left to do."""
        for _ in range(3_000):
            if all(one.error or len(one.done) == one.choices for one in self.asked):
                break
            self.now += 0.01
            self._place_again()
            for worker in self.workers.values():
                while worker.inbox:
                    self._hand_back(worker.receive())
                self._end(worker.step())
                for router in self.routers:
                    router.reports.append(worker.report())
            for router in self.routers:
                while router.reports or router.returned:
                    router.hear()
                router.admission.advance(self.now)
        for router in self.routers:
            while router.reports or router.returned:
                router.hear()

    def _end(self, ended: list[Stream]) -> None:
        for stream in ended:
            stream.ended = True
            if stream.choice < 0:
                stream.asked.prefilled = True
            else:
                stream.asked.done.add(stream.choice)
            self._leave(stream)

    def _hand_back(self, refused: list[Stream]) -> None:
        for stream in refused:
            asked = stream.asked
            if stream.choice < 0:
                asked.prefilling = False
            else:
                asked.missing.add(stream.choice)
            self._leave(stream)
            if asked not in self.again:
                self.again.append(asked)

    def _place_again(self) -> None:
        """Place choices that were handed back, after their pause."""
        again, self.again = self.again, []
        for asked in again:
            asked.router.place(asked)

    def _leave(self, stream: Stream) -> None:
        """Return a ticket once everything that ran on it has ended."""
        running = stream.asked.tickets[stream.ticket]
        running.discard(stream.choice)
        if not running:
            self._return(stream.asked, stream.ticket)

    @staticmethod
    def _return(asked: Asked, ticket: str) -> None:
        del asked.tickets[ticket]
        asked.router.returned.append(ticket)
