"""Queries of all Place streams: placed immediately, or held until their turn comes.

The queue is planned again when something changed that could let a request run: a query, a returned
ticket, a worker's report; or when a worker is expected to have little left to compute. Changes
within one turn of the loop count as one, and planning takes at most a quarter of the loop's time,
for any number of reporting workers.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.on_demand.state import ModelTurn
from services.router import metrics
from services.router.admission.controller import AdmissionController, AdmittedRequest, TicketUsage
from services.router.admission.shares.classes import AdmissionPolicy
from services.router.admission.waiting import (
    DEFAULT_SETTINGS,
    QueueOutlook,
    QueueSettings,
    WaitingRequest,
)
from services.router.api import outcomes
from services.router.api.claims import SUPERSEDED, Asker, PendingQuery, QueryClaims
from services.router.api.queries import (
    CLASS_NAMES,
    ShareOf,
    claim_from_proto,
    fill_order,
    fill_placement,
    waiting_from_proto,
)
from services.router.api.refusal_log import RefusalKind, RefusalLog
from services.router.metrics import PlacementMetrics
from services.router.policy.decision_log import AdmissionTurn, DecisionLog, DecisionRecord
from services.router.policy.placement_service import PlacementService
from services.router.sizing.demand import DemandLog, ModelDemand
from services.router.sizing.observe import with_queue

BEAT_SECONDS = 0.1
"""A session without a message for two of these intervals receives a heartbeat."""
_MIN_PAUSE = 0.001
_NO_CAPACITY = (Reason.OVERLOADED, Reason.NO_WORKER)
"""Rejections that more workers would have avoided."""
_PAUSES = 3.0
"""Pause after planning, as a multiple of the time that planning took."""


MakeAdmission = Callable[
    [
        PlacementService,
        Callable[[WaitingRequest, AdmittedRequest | BatonError], None],
        QueueSettings,
    ],
    AdmissionController,
]


class QueryDispatcher:
    """Answers place queries. Lives on the event loop.

    Args:
        placements: decides where requests go.
        settings: of the queue.
        share_of: returns each tenant's share.
        decisions: keeps each decision for explanations.
        make_admission: makes the admission controller.
        demand: counts what arrives.
        clock: a monotonic clock, in seconds.
        loop: for timers; by default the loop that runs when the first request waits.
    """

    def __init__(
        self,
        placements: PlacementService,
        settings: QueueSettings = DEFAULT_SETTINGS,
        share_of: ShareOf = lambda _: (0, 1.0),
        decisions: DecisionLog | None = None,
        make_admission: MakeAdmission = AdmissionController,
        demand: DemandLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.placements = placements
        self._controller = make_admission(placements, self._answer_late, settings)
        self._age = settings.age
        self._share_of = share_of
        self.decisions = decisions if decisions is not None else DecisionLog()
        self._demand = demand if demand is not None else DemandLog()
        self._clock = clock
        self._loop = loop
        self._claims = QueryClaims()
        self._refusals = RefusalLog(self._running_loop)
        self._sessions: dict[int, Asker] = {}
        self._pending: dict[int, PendingQuery] = {}
        """Waiting queries by number."""
        self._waiters: dict[int, int] = {}
        """Number of waiting queries by session."""
        self._to_flush: dict[int, Asker] = {}
        self._records: dict[str, PlacementMetrics] = {}
        """Metrics by model, for models that have or had workers."""
        self._turn_states: set[tuple[str, str]] = set()
        """Models whose workers start on demand, with their states."""
        self._planning: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0
        """Earliest time of the next planning."""
        self._beat: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of waiting queries."""
        return len(self._pending)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, no ticket is open, and no tenant state is kept."""
        return not self._pending and not self._claims.waiting and self._controller.idle

    def set_policy(self, policy: AdmissionPolicy) -> None:
        """Apply a policy of priority classes from the next request on."""
        self._controller.policy = policy
        self.wake()

    def set_turns(self, turns: Mapping[str, ModelTurn]) -> None:
        """Apply the states of all models whose workers start on demand."""
        self._controller.set_turns(turns)
        states = {(name, turn.state.value) for name, turn in turns.items()}
        for labels in self._turn_states - states:
            metrics.MODEL_TURN.remove(*labels)
        for labels in states - self._turn_states:
            metrics.MODEL_TURN.labels(*labels).set(1)
        self._turn_states = states
        self.wake()

    def open_session(self, asker: Asker) -> None:
        """Register a session, until `end_session`."""
        self._sessions[asker.number] = asker

    def end_session(self, number: int) -> None:
        """Forget a session, its waiting queries and its tickets."""
        del self._sessions[number]
        self._to_flush.pop(number, None)
        self._claims.end_session(number)
        for waiting in self._controller.end_session(number):
            self._forget(waiting.number, "session")
        self.wake()

    def ask(self, asker: Asker, query: router_pb2.PlaceQuery, *, may_wait: bool = True) -> int:
        """Answer a query immediately, or report that it waits.

        Args:
            asker: the session that sent it, which receives the answer.
            query: as received.
            may_wait: False: the session's frontend does not support waiting.

        Returns:
            Its number while it waits, for `cancel`; 0: it was answered.
        """
        began, now = time.perf_counter(), self._clock()
        controller, claim = self._controller, claim_from_proto(query)
        span = outcomes.begin_span(query)
        request_id, correlation_id = query.context.request_id, query.correlation_id
        pending: PendingQuery | None = None
        try:
            waiting = waiting_from_proto(
                query, controller.next_number(), asker.number, self._share_of, now
            )
            pending = PendingQuery(asker, waiting, correlation_id, request_id, claim, span)
            replaced = self._claims.check(pending, now)
            pending.ahead = controller.waiting(waiting.request.model)
            # A stream that resumes waits only for workers to start.
            may_wait &= not query.output_tokens or controller.is_away(waiting.request.model)
            admitted = controller.submit(waiting, now, may_wait=may_wait)
        except BatonError as error:
            outcomes.refuse(asker.frame().failed, correlation_id, error)
            context = query.context
            name = CLASS_NAMES.get(context.priority, "")
            kind = RefusalKind(error.reason.name, context.model, name, context.tenant)
            self._refusals.add(kind, request_id, error)
            if pending is not None:
                self._keep_refusal(pending, error, now)
                if error.reason in _NO_CAPACITY:
                    self._demand.refused(context.model, self._uncached(pending.waiting), now)
            outcomes.end_span(span, {"error.type": error.reason.name.lower()})
            metrics.PLACE_SECONDS.observe(time.perf_counter() - began)
            return 0
        for older, answer in replaced:
            if answer is SUPERSEDED:
                older.asker.tell_superseded(older.execution)
            self._controller.refuse(older.waiting.number, answer)
        self._count_arrival(waiting, admitted, now)
        number = 0
        if admitted is None:
            number = waiting.number
            self._hold(pending)
            queued = asker.frame().queued
            queued.correlation_id, queued.ahead = correlation_id, pending.ahead
        else:
            self._place(pending, admitted, now)
        if self._to_flush:
            # Of evicted queries; this session sends its own answers.
            self._to_flush.pop(asker.number, None)
            self._flush()
        metrics.PLACE_SECONDS.observe(time.perf_counter() - began)
        return number

    def cancel(self, number: int) -> None:
        """Remove a waiting query without an answer."""
        if self._controller.cancel(number):
            self._forget(number, "cancelled")

    def return_tickets(
        self,
        session: int,
        tickets: Sequence[str],
        finished: Sequence[str],
        usage: Mapping[str, TicketUsage],
    ) -> None:
        """End tickets of a session.

        Args:
            session: whose they are.
            tickets: their ids.
            finished: the tickets of claims that finished.
            usage: what their work used, where known.
        """
        now, done = self._clock(), set(finished)
        for ticket in tickets:
            self._claims.end_ticket(session, ticket, now, finished=ticket in done)
        self._controller.return_tickets(session, tickets, usage)
        for (priority_class, kept), count in self._controller.take_targets().items():
            outcome = "kept" if kept else "missed"
            metrics.TTFT_TARGETS.labels(CLASS_NAMES[priority_class], outcome).inc(count)
        self.wake()

    def drain(self, error: BatonError) -> None:
        """Fail all waiting queries with an error, and from now on those that would have to wait."""
        self._controller.drain(error)
        self._flush()
        self._refusals.flush()

    def wake(self) -> None:
        """Plan the queue soon: something changed."""
        if self._planning is not None or not self._pending:
            return
        loop = self._running_loop()
        pause = self._not_before - self._clock()
        if pause > 0:
            self._planning = loop.call_later(pause, self._advance)
        else:
            self._planning = loop.call_soon(self._advance)

    def set_gauges(self) -> None:
        """Set the gauges of waiting queries, the oldest's age, and the lateness of first tokens."""
        for model, factor in self._controller.lateness().items():
            metrics.TTFT_FACTOR.labels(model).set(factor)
        now = self._clock()
        for model, arrival in self._controller.oldest_arrivals().items():
            metrics.QUEUE_OLDEST_SECONDS.labels(model).set(max(0.0, now - arrival))
        counts = self._controller.waiting_by_class()
        for model, record in self._records.items():
            record.set_waiting(
                {name: counts[model, number] for number, name in CLASS_NAMES.items()}
            )

    def demand(self, model: str) -> ModelDemand:
        """Return what arrived for a model lately, and what waits here."""
        demand = self._demand.demand(model, self._clock())
        queued = self._controller.queued_work(model)
        return with_queue(demand, queued, self.placements, model)

    def outlook(self, model: str, tenant: str) -> QueueOutlook:
        """Return what a new request of the interactive class would meet; it changes nothing.

        Args:
            model: the model that it names.
            tenant: its tenant; empty: unknown.
        """
        query = router_pb2.PlaceQuery(prompt_tokens=1, max_tokens=1)
        query.context.model, query.context.tenant = model, tenant
        now = self._clock()
        return self._controller.outlook(waiting_from_proto(query, 0, 0, self._share_of, now), now)

    @property
    def ttft_target(self) -> float:
        """The strictest target of all classes for the first token; infinite: none has one."""
        return self._controller.policy.ttft_target

    def _count_arrival(
        self, waiting: WaitingRequest, admitted: AdmittedRequest | None, now: float
    ) -> None:
        if admitted is not None:
            tokens = float(admitted.placed.plan.uncached_tokens)
        else:
            tokens = self._uncached(waiting)
        self._demand.arrived(waiting.request.model, tokens, waiting.arrival, now)

    def _uncached(self, waiting: WaitingRequest) -> float:
        request = waiting.request
        known = request.prompt_tokens + request.output_tokens
        return self.placements.uncached_tokens(request.model, waiting.work, known)

    def _advance(self) -> None:
        self._planning = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        began = self._clock()
        self._controller.advance(began)
        self._flush()
        now = self._clock()
        self._not_before = now + max(_MIN_PAUSE, _PAUSES * (now - began))
        turn = self._controller.next_turn(began)
        if turn < math.inf:
            wait = max(turn, self._not_before) - now
            self._timer = self._running_loop().call_later(wait, self.wake)

    def _answer_late(self, waiting: WaitingRequest, outcome: AdmittedRequest | BatonError) -> None:
        """Answer a query that waited."""
        pending, now = self._pending[waiting.number], self._clock()
        asker = pending.asker
        if isinstance(outcome, BatonError):
            request, name = waiting.request, CLASS_NAMES[waiting.priority_class]
            self._forget(waiting.number, outcome.reason.name.lower())
            outcomes.refuse(asker.frame().failed, pending.correlation_id, outcome)
            kind = RefusalKind(outcome.reason.name, request.model, name, request.tenant)
            self._refusals.add(kind, pending.request_id, outcome)
            self._keep_refusal(pending, outcome, now)
            outcomes.end_span(pending.span, {"error.type": outcome.reason.name.lower()})
        else:
            self._forget(waiting.number, "placed")
            self._place(pending, outcome, now)
        asker.answered(pending.correlation_id)
        self._to_flush[asker.number] = asker

    def _place(self, pending: PendingQuery, admitted: AdmittedRequest, now: float) -> None:
        """Answer a query with its placement."""
        waiting, placed = pending.waiting, admitted.placed
        request, model = waiting.request, waiting.request.model
        if not request.output_tokens:
            plan = placed.plan
            waits = now - waiting.arrival + plan.ttft_seconds - plan.prefill_seconds
            self._demand.waited(model, waits, now)
        answer = pending.asker.frame().placement
        answer.correlation_id = pending.correlation_id
        fill_placement(answer, placed, self.placements)
        answer.ttft_target_seconds, answer.itl_target_seconds = self._controller.policy.targets(
            waiting.priority_class, waiting.ttft_target
        )
        since_epoch = time.time() - time.monotonic()
        rank, lead = admitted.rank, admitted.tenant_lead
        fill_order(answer.order, waiting, rank, lead, self._age, since_epoch)
        answer.order.step_seconds = answer.itl_target_seconds or self.placements.itl_target
        replaced = self._claims.begin(pending, placed.ticket)
        if replaced is not None and replaced[0] in self._sessions:
            self._sessions[replaced[0]].tell_superseded(replaced[1])
        turn = None
        if pending.ahead:
            turn = AdmissionTurn(
                *waiting.rank,
                admitted.tenant_lead,
                waiting.key,
                pending.ahead,
                pending.ahead,
                waiting.weight,
            )
        self.decisions.add(
            DecisionRecord(
                pending.request_id,
                request,
                now,
                now - waiting.arrival,
                turn,
                placed.plan,
                placed.decision.reason,
            )
        )
        record = self._records.get(model)
        if record is None:
            record = self._records[model] = PlacementMetrics(model)
        record.count(request.prompt_tokens, placed.decision)
        if pending.span is not None:
            waited = now - waiting.arrival
            attributes = outcomes.placement_attributes(pending.request_id, model, answer, waited)
            outcomes.end_span(pending.span, attributes)

    def _hold(self, pending: PendingQuery) -> None:
        self._pending[pending.waiting.number] = pending
        number = pending.asker.number
        self._waiters[number] = self._waiters.get(number, 0) + 1
        self._claims.hold(pending)
        if self._beat is None:
            self._beat = self._running_loop().call_later(BEAT_SECONDS, self._tell_alive)
        self.wake()

    def _forget(self, number: int, outcome: str) -> None:
        """Record that a query no longer waits."""
        pending = self._pending.pop(number)
        asker, waiting = pending.asker, pending.waiting
        left = self._waiters.pop(asker.number) - 1
        if left:
            self._waiters[asker.number] = left
        self._claims.forget(pending)
        waited = self._clock() - waiting.arrival
        metrics.QUEUE_SECONDS.labels(CLASS_NAMES[waiting.priority_class], outcome).observe(waited)
        if outcome in ("cancelled", "session"):
            outcomes.end_span(pending.span, {"error.type": outcome})

    def _keep_refusal(self, pending: PendingQuery, error: BatonError, now: float) -> None:
        waiting = pending.waiting
        name = CLASS_NAMES[waiting.priority_class]
        metrics.REFUSALS.labels(name, error.reason.name.lower()).inc()
        self.decisions.add(
            DecisionRecord(
                pending.request_id, waiting.request, now, now - waiting.arrival, refusal=error
            )
        )

    def _tell_alive(self) -> None:
        self._beat = None
        for number in self._waiters:
            self._sessions[number].beat()
        if self._waiters:
            self._beat = self._running_loop().call_later(BEAT_SECONDS, self._tell_alive)

    def _flush(self) -> None:
        while self._to_flush:
            _, asker = self._to_flush.popitem()
            asker.flush()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop
