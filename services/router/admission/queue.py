"""The queue: which requests are placed now, in which order, and which are rejected or evicted.

A request waits until the worker that suits it best has little left to compute, because a late
placement knows more: which workers have which blocks, and which shorter prompts arrived in
between. Classes below their floor go first; then tiers take turns by their shares, and within
each tier requests go by class, by their tenants' virtual times, and by a key: seconds left to
compute − age × seconds waited. All requests age equally from now on, so a key changes only with
what is cached.

Each change plans the first requests again. One whose worker is busy is planned there, and counts
for those behind it, so that no request waits for a worker that others will fill.

A request with a deadline is rejected on arrival if it would be late, or if by its key it would go
before others that would become late because of it.
"""

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from baton.errors import BatonError, Reason
from baton.request.room import output_reserve
from services.router.admission.in_time import RETRY_SECONDS, check_in_time, too_late
from services.router.admission.lateness import Lateness
from services.router.admission.lines import Lines
from services.router.admission.shares.charges import ShareCharges
from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.fairness import FairShares
from services.router.admission.shares.tier_shares import TierShares
from services.router.admission.waiting import (
    DEFAULT_SETTINGS,
    AdmissionPlan,
    Due,
    P,
    Planner,
    QueuedWork,
    QueueSettings,
    TicketCharge,
    WaitingRequest,
)

REFRESHED = 16
"""Most estimates renewed per change, so that a long queue does not slow the router down."""


class AdmissionQueue:
    """Waiting requests for one model. Owned by one event loop.

    Args:
        shares: of the tenants; charged by the queue.
        settings: constants.
        classes: of priority classes; charged by the queue; None: none has limits.
        lateness: of first tokens, observed by the caller that places requests; None: there is none.
    """

    def __init__(
        self,
        shares: FairShares,
        settings: QueueSettings = DEFAULT_SETTINGS,
        classes: ClassShares | None = None,
        lateness: Lateness | None = None,
    ) -> None:
        self._shares = shares
        self._settings = settings
        self._classes = classes if classes is not None else ClassShares()
        self._tiers = TierShares(settings.tiers)
        self.charges = ShareCharges(shares, self._tiers, self._classes)
        """Charges of requests that were placed, settled when their tickets are returned."""
        self._lateness = lateness if lateness is not None else Lateness()
        self._waiting: dict[int, WaitingRequest] = {}
        self._lines = Lines(shares, self._tiers, self._classes)
        self._tenants: dict[str, int] = {}
        """Number of requests by tenant."""
        self._sessions: dict[int, set[int]] = {}
        """Numbers by session."""
        self._bounds: list[tuple[float, int]] = []
        """When each request expires, in order."""
        self._estimated: OrderedDict[int, float] = OrderedDict()
        """When each request was last estimated, the oldest first."""

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    def add(
        self, waiting: WaitingRequest, planner: Planner[P], now: float
    ) -> WaitingRequest | None:
        """Enqueue a request; return one of a lower rank that was evicted for it.

        Args:
            waiting: the request; its number must be unique among waiting ones.
            planner: estimates it.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: OVERLOADED: the queue is full, for its tenant or in total, and nothing of a
                lower rank waits there; or its first token, or that of a request that it would go
                before, would be late. Or what estimating raises.
        """
        if waiting.number in self._waiting:
            raise ValueError(f"a request {waiting.number} waits already")
        waiting.work = planner.remaining_seconds(waiting.request)
        self._set_times(waiting)
        gives_way = self._giving_way(waiting)
        self._shares.join(waiting.tenant, waiting.weight, waiting.rank[0])
        self._tiers.join(waiting.rank[0])
        self._classes.join(waiting.priority_class)
        self._lines.add(waiting)
        if min(waiting.due, waiting.place_by) < math.inf:
            try:
                factor = self._lateness.factor
                check_in_time(waiting, self._lines, self._tiers, planner, now, factor)
            except BatonError:
                self._lines.remove(waiting)
                self._leave(waiting)
                raise
        self._enter(waiting, now)
        return self.remove(gives_way) if gives_way is not None else None

    def next_turn(self, planner: Planner[P], now: float) -> float:
        """Return when `expire` or `due` may return something, if no event arrives before.

        That is when a request expires, a worker has little left to compute, or the bucket of a
        class is no longer empty.

        Args:
            planner: knows the workers' current state.
            now: a monotonic clock, in seconds.

        Returns:
            A time of that clock; infinite: nothing waits.
        """
        if not self._waiting:
            return math.inf
        gate = self._settings.gate
        turns = [planner.next_turn(gate, now, rank) for rank in self._lines.class_ranks()]
        turn = min(self.next_bound, *turns)
        if self._classes.limited:
            turn = min(turn, self._classes.next_turn(self._lines.priority_classes(), now))
        return turn

    @property
    def next_bound(self) -> float:
        """When the next request expires; infinite: nothing waits."""
        return self._bounds[0][0] if self._bounds else math.inf

    @property
    def oldest_arrival(self) -> float:
        """Arrival of the oldest waiting request; infinite: nothing waits."""
        return min((waiting.arrival for waiting in self._waiting.values()), default=math.inf)

    @property
    def queued_work(self) -> QueuedWork:
        """Sums over all waiting requests."""
        sequences = prompts = kv = 0
        seconds = 0.0
        for waiting in self._waiting.values():
            request = waiting.request
            known = request.prompt_tokens + request.output_tokens
            sequences += request.n
            seconds += waiting.work
            prompts += known
            kv += known + request.n * output_reserve(request.max_tokens, request.output_tokens)
        return QueuedWork(len(self._waiting), sequences, seconds, prompts, kv)

    def is_full_for(self, waiting: WaitingRequest) -> bool:
        """Return whether a new request would be rejected because of the number that wait."""
        try:
            self._giving_way(waiting)
        except BatonError:
            return True
        return False

    def priority_classes(self) -> Iterator[int]:
        """Yield the priority class of each waiting request."""
        return (waiting.priority_class for waiting in self._waiting.values())

    def admit(
        self,
        waiting: WaitingRequest,
        plan: AdmissionPlan,
        queue_seconds: float,
        planner: Planner[P],
        now: float,
    ) -> TicketCharge | None:
        """Admit a request immediately and charge for it, unless it has to wait.

        It has to wait if others wait, its worker has more to compute than the gate, no worker has
        space for its choices, or its class has reached its ceiling.

        Args:
            waiting: the request, whose times and key are set.
            plan: where it would go now.
            queue_seconds: seconds of queued computation of its worker.
            planner: knows the workers.
            now: a monotonic clock, in seconds.

        Returns:
            What it was charged; None: it has to wait.

        Raises:
            BatonError: OVERLOADED: its first token would be late.
        """
        waiting.work = plan.prefill_seconds
        self._set_times(waiting)
        if self._waiting or queue_seconds > self._settings.gate or not plan.has_room:
            return None
        if not self._lateness.allows(plan.ttft_seconds, waiting.due - now):
            raise too_late(self._lateness.factor * plan.ttft_seconds, waiting.due - now)
        if self._classes.limited:
            self._classes.fill(now, planner.tokens_per_second())
        if self._classes.held(waiting.priority_class):
            return None
        return self.charges.begin_now(waiting, plan.uncached_tokens)

    def charge(self, waiting: WaitingRequest, plan: AdmissionPlan) -> TicketCharge:
        """Charge for a request that never waits, such as a stream that resumes."""
        waiting.work = plan.prefill_seconds
        self._set_times(waiting)
        return self.charges.begin_now(waiting, plan.uncached_tokens)

    def remove(self, number: int) -> WaitingRequest | None:
        """Remove a cancelled request; None: it does not wait."""
        if number not in self._waiting:
            return None
        waiting = self._take(number)
        self._leave(waiting)
        return waiting

    def end_session(self, session: int) -> list[WaitingRequest]:
        """Remove all requests of a session, in the order of their numbers."""
        gone = [self.remove(number) for number in sorted(self._sessions.get(session, ()))]
        return [waiting for waiting in gone if waiting is not None]

    def expire(self, now: float) -> list[WaitingRequest]:
        """Remove requests that waited for too long, or beyond their deadlines."""
        gone = []
        while self._bounds and self._bounds[0][0] <= now:
            waiting = self.remove(self._bounds[0][1])
            if waiting is not None:
                gone.append(waiting)
        return gone

    def due(self, planner: Planner[P], now: float) -> Iterator[Due[P]]:
        """Remove the requests whose turn has come, one by one.

        The caller calls `expire` before, and places each request before it takes the next one, so
        that its load is counted. A request whose first token would come after its deadline is
        returned with an error.

        Args:
            planner: knows the workers' current state.
            now: a monotonic clock, in seconds.
        """
        if self._classes.limited:
            self._classes.fill(now, planner.tokens_per_second())
        gate = self._settings.gate
        planned: dict[str, float] = {}
        if not self._waiting:
            return
        highest = min(self._lines.class_ranks())
        queues = planner.queue_seconds(now, highest)
        if queues and min(queues.values()) > gate:
            return
        planner.hold_nothing()
        if not planner.any_room(highest):
            return
        self._refresh(planner, now)  # when no request can go, the order makes no difference
        if queues and len(self._tenants) > 1:
            self._shares.tokens_per_second = planner.tokens_per_second() / len(queues)
        least = self._shares.least_active()
        first = list(islice(self._lines.in_order(held=False), self._settings.window))
        known = {highest: queues}
        busy: float = math.inf
        """Rank from which on all workers have enough to do, or no room."""
        for _, number, _ in first:
            waiting = self._waiting.get(number)
            if waiting is None or self._classes.held(waiting.priority_class):
                continue
            rank = waiting.rank[1]
            if rank >= busy:
                continue
            if rank not in known:
                known[rank] = planner.queue_seconds(now, rank)
            queues = known[rank]
            if queues and min(queues.values()) > gate:
                busy = rank
                if rank == highest:
                    return
                continue
            try:
                plan = planner.plan(waiting, planned, now)
            except BatonError as error:
                self.remove(number)
                yield Due(waiting, error, None)
                continue
            worker = plan.worker_id
            if queues.get(worker, 0.0) > gate:
                planned[worker] = planned.get(worker, 0.0) + plan.prefill_seconds
                continue
            if not plan.has_room:
                planner.hold(plan)
                if not planner.any_room(rank):
                    busy = rank
                    if rank == highest:
                        return
                continue
            if now + plan.ttft_seconds > waiting.deadline:
                self.remove(number)
                yield Due(waiting, too_late(plan.ttft_seconds, waiting.deadline - now), None)
                continue
            lead, ranks = self._shares.lead(waiting.tenant, least), self.rank(waiting)
            self._take(number)
            charge = self.charges.begin(waiting, plan.uncached_tokens)
            yield Due(waiting, plan, charge, lead, ranks)
            known = {}

    def order(self) -> Iterator[int]:
        """Yield the numbers of all waiting requests, in order; the queue must not change meanwhile.

        Those of classes at their ceiling come last.
        """
        return (number for _, number, _ in self._lines.in_order(held=True))

    def rank(self, waiting: WaitingRequest) -> tuple[int, int]:
        """Return the ranks of a request's tier and class in the workers' lines, if placed now.

        A request that goes because of its tier's or class's turn does not wait there for higher
        ranks. One whose tier received more than another goes behind what was placed of that other
        tier.
        """
        tier, priority_class = waiting.rank
        if self._classes.owed(waiting.priority_class):
            return 0, 0
        return (
            tier if self._settings.tiers.strict else int(self._tiers.ahead(tier)),
            priority_class,
        )

    def _set_times(self, waiting: WaitingRequest) -> None:
        policy, settings = self._classes.policy.of(waiting.priority_class), self._settings
        arrival = waiting.arrival
        if waiting.deadline == math.inf:
            waiting.deadline = arrival + policy.deadline
        target = waiting.ttft_target if waiting.ttft_target < math.inf else policy.ttft_target
        waiting.due = math.inf if policy.waits else min(waiting.deadline, arrival + target)
        longest = min(settings.max_wait, policy.max_wait)
        waiting.bound = min(waiting.deadline, arrival + longest, waiting.place_by)
        waiting.key = self._key(waiting)

    def _key(self, waiting: WaitingRequest) -> float:
        return waiting.work + waiting.choices_seconds + self._settings.age * waiting.arrival

    def _refresh(self, planner: Planner[P], now: float) -> None:
        """Renew the oldest estimates: cached blocks may have changed since."""
        due = now - self._settings.refresh
        for _ in range(min(REFRESHED, len(self._estimated))):
            number, at = next(iter(self._estimated.items()))
            if at > due:
                return
            waiting = self._waiting[number]
            self._estimated[number] = now
            self._estimated.move_to_end(number)
            try:
                work = planner.remaining_seconds(waiting.request)
            except BatonError:
                # Its model was removed: planning raises when its turn comes.
                continue
            if work != waiting.work:
                self._lines.remove(waiting)
                waiting.work = work
                waiting.key = self._key(waiting)
                self._lines.add(waiting)

    def _giving_way(self, newcomer: WaitingRequest) -> int | None:
        """Return the request to evict for a newcomer when the queue is full; None: it is not full.

        It is the last one of the lowest class: of the newcomer's tenant if that tenant is at its
        limit, otherwise of the tier with the most waiting for its share. Where tiers are strict, it
        is the last one of the lowest rank.
        """
        settings, tenant, tier = self._settings, newcomer.tenant, newcomer.rank[0]
        if self._tenants.get(tenant, 0) >= settings.max_tenant:
            last, whose = self._lines.last(tenant), f"tenant {tenant!r}"
        elif len(self._waiting) < settings.max_total:
            return None
        elif settings.tiers.strict or (most := self._tiers.most_over(tier)) == tier:
            same = None if settings.tiers.strict else tier
            last, whose = self._lines.last(None, same), "all tenants"
        else:
            return self._lines.last(None, most)
        if last is None or self._waiting[last].rank <= newcomer.rank:
            raise BatonError(
                Reason.OVERLOADED,
                f"the router's queue for {whose} is full",
                retry_after=RETRY_SECONDS,
            )
        return last

    def _enter(self, waiting: WaitingRequest, now: float) -> None:
        """Track a request that is in the lines and has joined shares and classes."""
        number, tenant = waiting.number, waiting.tenant
        self._waiting[number] = waiting
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        self._sessions.setdefault(waiting.session, set()).add(number)
        insort(self._bounds, (waiting.bound, number))
        self._estimated[number] = now

    def _leave(self, waiting: WaitingRequest) -> None:
        self._shares.leave(waiting.tenant)
        self._tiers.leave(waiting.rank[0])
        self._classes.leave(waiting.priority_class)

    def _take(self, number: int) -> WaitingRequest:
        waiting = self._waiting.pop(number)
        self._lines.remove(waiting)
        del self._estimated[number]
        del self._bounds[bisect_left(self._bounds, (waiting.bound, number))]
        session = self._sessions[waiting.session]
        session.discard(number)
        if not session:
            del self._sessions[waiting.session]
        left = self._tenants.pop(waiting.tenant) - 1
        if left:
            self._tenants[waiting.tenant] = left
        return waiting
