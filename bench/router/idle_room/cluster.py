"""Combined workers and the router's queue and placement, on one clock."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from baton.engine.base import SequenceRequest
from baton.engine.sim.pages import TOKEN_BYTES
from baton.engine.sim.runner import SimCosts
from baton.engine.work_order import WorkOrder
from baton.errors import BatonError
from baton.kv.keys import prompt_keys
from baton.sampling import SamplingParams
from baton.v1 import common_pb2
from bench.router.idle_room.clock import Clock
from bench.router.idle_room.worker import BLOCK_TOKENS, VirtualWorker, Work
from services.router.admission.controller import AdmissionController, AdmittedRequest, TicketUsage
from services.router.admission.waiting import WaitingRequest
from services.router.policy.placement_service import Chain, PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable

INTERACTIVE, BATCH = 1, 2
"""Ranks of the classes."""
NETWORK_SECONDS = 0.002
_CLASSES: Mapping[int, int] = {
    INTERACTIVE: common_pb2.PRIORITY_CLASS_INTERACTIVE,
    BATCH: common_pb2.PRIORITY_CLASS_BATCH,
}
_ROOT = bytes(16)
_LAYOUT = b"layout"
_SESSION = 1
_LEAST_SECONDS = 0.001
"""Between two looks at the queue without an event."""


@dataclass(eq=False)
class Asked:
    """A request of a client."""

    prompt: tuple[int, ...]
    output: int
    rank: int
    at: float
    on_ended: Callable[["Asked"], None]
    times: list[float] = field(default_factory=list)
    """When its tokens came."""
    placed_at: float = 0.0

    @property
    def first(self) -> float:
        """Seconds to its first token."""
        return self.times[0] - self.at


class VirtualCluster:
    """Two kinds of clients' requests on workers with `sim`'s costs.

    Args:
        workers: how many.
        places: `max_running` of each.
        scale: of the default costs.
        seed: of prompts.
        step_seconds: target of the time between tokens; 0: lower classes take what they want.
        chunk_tokens: prompt tokens per step.
    """

    def __init__(
        self,
        workers: int,
        places: int,
        scale: float,
        seed: int,
        step_seconds: float,
        chunk_tokens: int = 512,
    ) -> None:
        self.clock = Clock()
        self._draw = random.Random(seed)
        self._step_seconds = step_seconds
        self._index = PrefixIndex()
        self._fleet = Fleet(self._index, TicketTable("router"))
        for number in range(workers):
            name = f"worker-{number}"
            self._fleet.put(
                InstanceState(name, Role.COMBINED, "1", f"{name}:1", "m", layout_id=_LAYOUT)
            )
        layout = ModelLayout("m", _LAYOUT, BLOCK_TOKENS, BLOCK_TOKENS * TOKEN_BYTES)
        self._fleet.set_layouts([layout])
        self._controller = AdmissionController(PlacementService(self._fleet), self._answered)
        costs = SimCosts(scale / 20_000, scale * 0.005, scale * 0.0001)
        self._asked: dict[int, Asked] = {}
        self._turn = math.inf
        self._workers = {
            one.id: VirtualWorker(
                one.id,
                self.clock,
                costs,
                places,
                chunk_tokens,
                self._reported,
                lambda name, keys: self._index.add_blocks(name, 1, keys),
                self._ended,
            )
            for one in self._fleet.registered("m")
        }
        for worker in self._workers.values():
            worker.report()

    def tokens(self, count: int) -> tuple[int, ...]:
        """Return a prompt that no other request has."""
        return tuple(self._draw.randrange(3, 990) for _ in range(count))

    def ask(
        self, prompt: Sequence[int], output: int, rank: int, on_ended: Callable[[Asked], None]
    ) -> None:
        """Send a request to the router."""
        number, now = self._controller.next_number(), self.clock.now
        self._asked[number] = Asked(tuple(prompt), output, rank, now, on_ended)
        keys = b"".join(prompt_keys(_ROOT, prompt, BLOCK_TOKENS).full)
        request = PlacementRequest("m", len(prompt), output, [Chain(_LAYOUT, keys)], seed=number)
        waiting = WaitingRequest(number, request, _SESSION, now, (0, rank), _CLASSES[rank])
        admitted = self._controller.submit(waiting, now)
        if admitted is not None:
            self._place(waiting, admitted)
        self._advance()

    def _answered(self, waiting: WaitingRequest, outcome: AdmittedRequest | BatonError) -> None:
        if isinstance(outcome, BatonError):
            raise outcome
        self._place(waiting, outcome)

    def _place(self, waiting: WaitingRequest, admitted: AdmittedRequest) -> None:
        asked, placed = self._asked[waiting.number], admitted.placed
        asked.placed_at = self.clock.now
        request = SequenceRequest(
            id=waiting.number,
            root=_ROOT,
            prompt=asked.prompt,
            sampling=SamplingParams(temperature=0.0, max_tokens=asked.output, ignore_eos=True),
            order=WorkOrder(*admitted.rank, admitted.tenant_lead, waiting.key),
            step_seconds=self._step_seconds,
            expected_cached_tokens=len(asked.prompt) - placed.plan.uncached_tokens,
        )
        worker = self._workers[placed.decision.decode_worker.id]
        work = Work(request, placed.ticket, asked.times)
        self.clock.at(self.clock.now + NETWORK_SECONDS, lambda: worker.add(work))

    def _reported(self, report: LoadReport) -> None:
        self._fleet.apply_report(report, self.clock.now)
        self._advance()

    def _ended(self, work: Work) -> None:
        asked = self._asked.pop(work.request.id)
        first = asked.times[0] - asked.placed_at
        usage = TicketUsage(len(asked.prompt), asked.output, first)
        self._controller.return_tickets(_SESSION, [work.ticket], {work.ticket: usage})
        asked.on_ended(asked)
        self._advance()

    def _advance(self) -> None:
        self._controller.advance(self.clock.now)
        turn = self._controller.next_turn(self.clock.now)
        if turn < self._turn:
            self._turn = max(turn, self.clock.now + _LEAST_SECONDS)
            self.clock.at(self._turn, self._look)

    def _look(self) -> None:
        if self._turn <= self.clock.now:
            self._turn = math.inf
        self._advance()
