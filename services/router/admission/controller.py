"""Which requests are placed immediately, which wait, and where each outcome is delivered.

Everything that a router does with a request between its query and the return of its ticket, without
I/O or a clock: one queue per model, charges per tenant, and delivery of the outcomes.
Each request that waits gets exactly one outcome, however its wait ends.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from baton.errors import BatonError, Reason
from baton.on_demand.state import ModelTurn
from services.router.admission.forecast import Forecast
from services.router.admission.in_time import RETRY_SECONDS
from services.router.admission.lateness import Lateness
from services.router.admission.planner import FleetPlanner
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.classes import DEFAULT_ADMISSION, AdmissionPolicy
from services.router.admission.shares.fairness import FairShares
from services.router.admission.starting import StartingPlanner
from services.router.admission.waiting import (
    DEFAULT_SETTINGS,
    NOTHING_QUEUED,
    QueuedWork,
    QueueOutlook,
    QueueSettings,
    TicketCharge,
    WaitingRequest,
)
from services.router.policy.placement_service import PlacedRequest, PlacementService

MAX_CHARGES = 100_000
"""Most placements per session with open tickets; beyond it, the oldest is settled."""


class TicketUsage(NamedTuple):
    """What the work of a ticket used, in tokens."""

    computed_prompt_tokens: int
    output_tokens: int
    first_token_seconds: float = 0.0
    """Seconds from its placement to its first token; 0: there was none, or it is not known."""


class _OpenTicket(NamedTuple):
    """What is kept of a placement until its ticket is returned."""

    model: "_Model"
    charge: TicketCharge
    predicted: float
    """Predicted seconds to its first token; 0 for a stream that resumes."""
    left: float
    """Seconds that were left for its first token; infinite: it had no deadline."""


class AdmittedRequest(NamedTuple):
    """A request that was placed."""

    placed: PlacedRequest
    rank: tuple[int, int]
    """Ranks of its tier and class in the workers' waiting lines."""
    tenant_lead: float = 0.0
    """Weighted tokens that its tenant received beyond the least of its tier."""


class _Model:
    """The state that requests for one model share."""

    def __init__(self, placements: PlacementService, name: str, settings: QueueSettings) -> None:
        self.shares = FairShares()
        self.classes = ClassShares()
        self.lateness = Lateness()
        self.queue = AdmissionQueue(self.shares, settings, self.classes, self.lateness)
        self.planner = FleetPlanner(placements, name)
        self.token_seconds = 0.0
        """Of a prompt's token on one of its workers, when they last took requests; 0: not known."""


class AdmissionController:
    """Admits requests to the workers of all models. Owned by one event loop.

    Args:
        placements: decides where requests go.
        on_answer: called with each request that waited and its outcome, a placement or an error;
            never from within `submit` of that request.
        settings: of each model's queue.
    """

    def __init__(
        self,
        placements: PlacementService,
        on_answer: Callable[[WaitingRequest, AdmittedRequest | BatonError], None],
        settings: QueueSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._placements = placements
        self._on_answer = on_answer
        self._settings = settings
        self._policy = DEFAULT_ADMISSION
        self._models: dict[str, _Model] = {}
        self._where: dict[int, _Model] = {}
        """The model of each waiting request, by number."""
        self._issued: dict[int, dict[str, _OpenTicket]] = {}
        """Open tickets by session, then by ticket."""
        self._targets: Counter[tuple[int, bool]] = Counter()
        self._turns: dict[str, ModelTurn] = {}
        """Models whose workers start on demand."""
        self._draining: BatonError | None = None
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._where)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, no ticket is open, and no tenant state is kept."""
        return not (
            self._where
            or self._issued
            or any(len(model.shares) or len(model.queue) for model in self._models.values())
        )

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of priority classes; a new one applies from the next request on."""
        return self._policy

    @policy.setter
    def policy(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        for model in self._models.values():
            model.classes.policy = policy

    def set_turns(self, turns: Mapping[str, ModelTurn]) -> None:
        """Take the states of all models whose workers start on demand.

        Requests for one that is not ready, or has no worker, wait until it is and has; `advance`
        places them then.
        """
        for name, turn in turns.items():
            if turn.holds and not self.is_held(name):
                queues = self._placements.queue_seconds(name, 0.0)
                rate = self._placements.tokens_per_second(name)
                if queues and rate > 0:
                    self._model(name).token_seconds = len(queues) / rate
        self._turns = dict(turns)

    def is_held(self, model: str) -> bool:
        """Return whether requests for a model wait for its workers to start."""
        turn = self._turns.get(model)
        return turn is not None and (turn.holds or not self._has_workers(model))

    def is_away(self, model: str) -> bool:
        """Return whether a model has no worker, and is to get some for requests that wait."""
        return model in self._turns and not self._has_workers(model)

    def next_number(self) -> int:
        """Return the number of a new request."""
        return next(self._numbers)

    def waiting(self, model: str) -> int:
        """Return the number of waiting requests for a model."""
        known = self._models.get(model)
        return len(known.queue) if known is not None else 0

    def waiting_by_class(self) -> Counter[tuple[str, int]]:
        """Return the number of waiting requests, by model and priority class."""
        return Counter(
            (name, priority_class)
            for name, model in self._models.items()
            for priority_class in model.queue.priority_classes()
        )

    def oldest_arrivals(self) -> dict[str, float]:
        """Return the arrival of each model's oldest waiting request; infinite: none waits."""
        return {name: model.queue.oldest_arrival for name, model in self._models.items()}

    def queued_work(self, model: str) -> QueuedWork:
        """Return sums over the waiting requests for a model."""
        known = self._models.get(model)
        return known.queue.queued_work if known is not None else NOTHING_QUEUED

    def outlook(self, newcomer: WaitingRequest, now: float) -> QueueOutlook:
        """Return what a new request would meet; it is not enqueued.

        Its prompt makes no difference: whether it would be late depends on what is cached of it,
        and is checked only when it is submitted.

        Args:
            newcomer: with its model, tenant and rank.
            now: a monotonic clock, in seconds.
        """
        name, known = newcomer.request.model, self._models.get(newcomer.request.model)
        if self.is_held(name):
            full = known is not None and known.queue.is_full_for(newcomer)
            wait = self._turns[name].ready_in(now) + self.queued_work(name).prefill_seconds
            return QueueOutlook(True, full, wait)
        rank = newcomer.rank[1]
        queues = self._placements.queue_seconds(name, now, rank)
        if not queues:
            return QueueOutlook()
        idle = min(queues.values()) <= self._settings.gate
        if not self.waiting(name) and idle and self._placements.any_room(name, {}, rank):
            return QueueOutlook()
        work = self.queued_work(name).prefill_seconds
        full = known is not None and known.queue.is_full_for(newcomer)
        return QueueOutlook(True, full, Forecast(queues.values()).begins(work))

    def lateness(self) -> dict[str, float]:
        """Return `Lateness.factor` of each model."""
        return {name: model.lateness.factor for name, model in self._models.items()}

    def take_targets(self) -> Mapping[tuple[int, bool], int]:
        """Return the counts, since the last call, of first tokens that had a target.

        Counted by priority class and by whether they met it.
        """
        targets = self._targets
        if targets:
            self._targets = Counter()
        return targets

    def submit(
        self, waiting: WaitingRequest, now: float, *, may_wait: bool = True
    ) -> AdmittedRequest | None:
        """Place a request immediately, or enqueue it and return None.

        Args:
            waiting: the request, with a number of `next_number`.
            now: a monotonic clock, in seconds.
            may_wait: False: place it immediately, however long its worker's queue is.

        Raises:
            BatonError: no worker can run it, its deadline cannot be met, the queue is full, or the
                router drains and the request would wait.
        """
        placements, request = self._placements, waiting.request
        waiting.choices_seconds = placements.choices_seconds(request)
        model = self._models.get(request.model)
        if may_wait and self.is_held(request.model):
            self._wait(self._model(request.model), waiting, now)
            return None
        if may_wait and model is not None and len(model.queue):
            self._wait(model, waiting, now)  # planned once it is known to be in time
            return None
        plan = placements.plan(request, now, rank=waiting.rank[1])
        model = self._model(request.model)
        queue = model.queue
        if may_wait:
            charge = queue.admit(waiting, plan, plan.queue_seconds, model.planner, now)
        else:
            charge = queue.charge(waiting, plan)
        if charge is not None:
            try:
                target = self._policy.itl_target(waiting.priority_class)
                placed = placements.commit(plan, waiting.session, now, target)
            except BatonError:
                queue.charges.settle(charge, 0, 0)
                raise
            self._remember(model, charge, waiting, placed, now)
            tier, priority_class = waiting.rank
            return AdmittedRequest(
                placed, (tier if self._settings.tiers.strict else 0, priority_class)
            )
        self._wait(model, waiting, now)
        return None

    def _wait(self, model: _Model, waiting: WaitingRequest, now: float) -> None:
        if self._draining is not None:
            raise self._draining
        name = waiting.request.model
        if self.is_held(name):
            starting = StartingPlanner(self._turns[name], model.token_seconds)
            gave_way = model.queue.add(waiting, starting, now)
        else:
            gave_way = model.queue.add(waiting, model.planner, now)
        self._where[waiting.number] = model
        if gave_way is not None:
            self._answer(
                gave_way,
                BatonError(
                    Reason.OVERLOADED,
                    "the router's queue is full, and a request of higher priority replaced this "
                    "one",
                    retry_after=RETRY_SECONDS,
                ),
            )

    def cancel(self, number: int) -> bool:
        """Remove a request without an outcome; return whether it was waiting."""
        model = self._where.pop(number, None)
        if model is None:
            return False
        model.queue.remove(number)
        return True

    def refuse(self, number: int, error: BatonError) -> None:
        """Remove a request and deliver an error as its outcome; no effect unless it waits."""
        model = self._where.get(number)
        waiting = model.queue.remove(number) if model is not None else None
        if waiting is not None:
            self._answer(waiting, error)

    def advance(self, now: float) -> None:
        """Place requests whose turn has come, and expire those that waited for too long."""
        for name, model in self._models.items():
            if not len(model.queue):
                continue
            for waiting in model.queue.expire(now):
                self._answer(waiting, _too_long(waiting, now))
            if len(model.queue) and not self.is_held(name):
                self._place(model, now)

    def next_turn(self, now: float) -> float:
        """Return when `advance` may have something to do, if no event arrives before.

        Args:
            now: when it was last called, by the same clock.

        Returns:
            A time of that clock; infinite: not before the next event.
        """
        return min(
            (
                model.queue.next_bound
                if self.is_held(name)
                else model.queue.next_turn(model.planner, now)
                for name, model in self._models.items()
                if len(model.queue)
            ),
            default=math.inf,
        )

    def return_tickets(
        self, session: int, tickets: Sequence[str], usage: Mapping[str, TicketUsage]
    ) -> None:
        """End tickets of a session; unknown ones and those of other sessions are ignored.

        Args:
            session: the session that owns them.
            tickets: their ids.
            usage: what their work used, where known; the others are taken as predicted.
        """
        self._placements.return_tickets(session, tickets)
        issued = self._issued.get(session)
        if issued is None:
            return
        for ticket in tickets:
            self._settle(issued, ticket, usage.get(ticket))
        if not issued:
            del self._issued[session]

    def end_session(self, session: int) -> list[WaitingRequest]:
        """Remove what a session waits for, without outcomes, and end its tickets.

        Returns:
            The requests that waited.
        """
        gone = [
            waiting
            for model in self._models.values()
            for waiting in model.queue.end_session(session)
        ]
        for waiting in gone:
            del self._where[waiting.number]
        self._placements.end_session(session)
        issued = self._issued.pop(session, {})
        for ticket in list(issued):
            self._settle(issued, ticket, None)
        return gone

    def drain(self, error: BatonError) -> None:
        """Fail all waiting requests with an error, and later ones that would have to wait."""
        self._draining = error
        for number in list(self._where):
            self.refuse(number, error)

    def _has_workers(self, name: str) -> bool:
        """Return whether a model has a worker that takes requests."""
        return bool(self._placements.queue_seconds(name, 0.0))

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model(self._placements, name, self._settings)
            model.classes.policy = self._policy
        return model

    def _place(self, model: _Model, now: float) -> None:
        for waiting, plan, charge, lead, rank in model.queue.due(model.planner, now):
            if isinstance(plan, BatonError) or charge is None:
                assert isinstance(plan, BatonError)
                self._answer(waiting, plan)
                continue
            try:
                target = self._policy.itl_target(waiting.priority_class)
                placed = model.planner.place(plan, waiting.session, now, target)
            except BatonError as error:
                model.queue.charges.settle(charge, 0, 0)
                self._answer(waiting, error)
                continue
            self._remember(model, charge, waiting, placed, now)
            self._answer(waiting, AdmittedRequest(placed, rank, lead))

    def _answer(self, waiting: WaitingRequest, outcome: AdmittedRequest | BatonError) -> None:
        del self._where[waiting.number]
        self._on_answer(waiting, outcome)

    def _remember(
        self,
        model: _Model,
        charge: TicketCharge,
        waiting: WaitingRequest,
        placed: PlacedRequest,
        now: float,
    ) -> None:
        issued = self._issued.setdefault(waiting.session, {})
        if len(issued) >= MAX_CHARGES:
            self._settle(issued, next(iter(issued)), None)
        predicted = 0.0 if waiting.request.output_tokens else placed.plan.ttft_seconds
        issued[placed.ticket] = _OpenTicket(model, charge, predicted, waiting.due - now)

    def _settle(
        self, issued: dict[str, _OpenTicket], ticket: str, usage: TicketUsage | None
    ) -> None:
        known = issued.pop(ticket, None)
        if known is None:
            return
        model, charge, predicted, left = known
        if usage is None:
            model.queue.charges.settle(charge)
            return
        model.queue.charges.settle(charge, usage.computed_prompt_tokens, usage.output_tokens)
        actual = usage.first_token_seconds
        if predicted > 0 and 0 < actual < math.inf:
            model.lateness.observe(predicted, actual)
            if left < math.inf:
                self._targets[charge.priority_class, actual <= left] += 1


def _too_long(waiting: WaitingRequest, now: float) -> BatonError:
    waited = now - waiting.arrival
    if now >= waiting.deadline:
        return BatonError(
            Reason.DEADLINE,
            f"no worker was available for the first token before the request's deadline; it waited "
            f"{waited:.1f} s",
        )
    return BatonError(
        Reason.OVERLOADED,
        f"no worker was available within {waited:.0f} s",
        retry_after=RETRY_SECONDS,
    )
