"""The queue: which requests go now, in which order, and who gives way when it is full.

A request waits until the worker that it is best placed on has little left to compute, for what is
placed late is placed on what is known late: who has which blocks, and which shorter prompt came in
between. Requests go by rank, then by their tenants' virtual times, then by a key: seconds left to
compute − age × seconds waited. All wait equally long from now on, so that a key never changes but
with what is cached.

Each change plans the first requests again. One whose worker has enough to do is planned there, and
counts for those behind it: nobody waits for a worker that others will fill.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from heapq import merge
from itertools import groupby, islice

from baton.errors import BatonError, Reason
from services.router.admission.fairness import FairShares
from services.router.admission.waiting import (
    DEFAULT_SETTINGS,
    Due,
    P,
    Planner,
    QueueSettings,
    Waiting,
)

RETRY_SECONDS = 1.0

_Lines = dict[str, list[tuple[float, int]]]
"""By tenant, (key, number) of its requests of one rank, in order."""


class AdmissionQueue:
    """Requests for one model that wait. One loop owns it.

    Args:
        shares: of the tenants, which the queue charges; who gets a ticket back settles.
        settings: constants.
    """

    def __init__(self, shares: FairShares, settings: QueueSettings = DEFAULT_SETTINGS) -> None:
        self._shares = shares
        self._settings = settings
        self._waiting: dict[int, Waiting] = {}
        self._lines: dict[tuple[int, int], _Lines] = {}
        self._tenants: dict[str, int] = {}
        """Requests by tenant."""
        self._sessions: dict[int, set[int]] = {}
        """Numbers by session."""
        self._bounds: list[tuple[float, int]] = []
        """When each is given up, in order."""
        self._estimated: OrderedDict[int, float] = OrderedDict()
        """When each was last estimated, the oldest first."""

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._waiting)

    def add(self, waiting: Waiting, planner: Planner[P], now: float) -> Waiting | None:
        """Let a request wait; return one of a lower rank that had to go for it.

        Args:
            waiting: the request; its number is that of none that waits.
            planner: estimates it.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: OVERLOADED: the queue is full, for its tenant or for all, and nothing of a
                lower rank waits there. Or what estimating raises.
        """
        if waiting.number in self._waiting:
            raise ValueError(f"a request {waiting.number} waits already")
        work = planner.remaining_seconds(waiting.request)
        gave_way = self._make_room(waiting)
        settings = self._settings
        waiting.key = work + settings.age * waiting.arrival
        waiting.bound = min(waiting.deadline, waiting.arrival + settings.max_wait)
        number, tenant = waiting.number, waiting.tenant
        self._shares.join(tenant, waiting.weight)
        self._waiting[number] = waiting
        self._enter_line(waiting)
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        self._sessions.setdefault(waiting.session, set()).add(number)
        insort(self._bounds, (waiting.bound, number))
        self._estimated[number] = now
        return gave_way

    def remove(self, number: int) -> Waiting | None:
        """Take a request out that was cancelled; None: it does not wait."""
        if number not in self._waiting:
            return None
        waiting = self._take(number)
        self._shares.leave(waiting.tenant)
        return waiting

    def end_session(self, session: int) -> list[Waiting]:
        """Take all requests of a session out, in the order of their numbers."""
        gone = [self.remove(number) for number in sorted(self._sessions.get(session, ()))]
        return [waiting for waiting in gone if waiting is not None]

    def expire(self, now: float) -> list[Waiting]:
        """Take out what has waited for too long, or beyond its deadline."""
        gone = []
        while self._bounds and self._bounds[0][0] <= now:
            waiting = self.remove(self._bounds[0][1])
            if waiting is not None:
                gone.append(waiting)
        return gone

    def due(self, planner: Planner[P], now: float) -> Iterator[Due[P]]:
        """Take out the requests whose turn has come, one by one.

        The caller places each before it takes the next one, so that its load is counted, and calls
        `expire` before.

        Args:
            planner: knows the workers as they are now.
            now: a monotonic clock, in seconds.
        """
        self._refresh(planner, now)
        gate = self._settings.gate
        planned: dict[str, float] = {}
        queues = planner.queue_seconds()
        for number in list(islice(self.order(), self._settings.window)):
            if queues and min(queues.values()) > gate:
                return
            waiting = self._waiting.get(number)
            if waiting is None:
                continue
            try:
                plan = planner.plan(waiting, planned)
            except BatonError as error:
                self._take(number)
                self._shares.leave(waiting.tenant)
                yield Due(waiting, error, 0)
                continue
            worker = plan.worker_id
            if queues.get(worker, 0.0) > gate:
                planned[worker] = planned.get(worker, 0.0) + plan.prefill_seconds
                continue
            self._take(number)
            charged = self._shares.cost(plan.uncached_tokens, waiting.output_tokens)
            self._shares.begin(waiting.tenant, charged)
            yield Due(waiting, plan, charged)
            queues = planner.queue_seconds()

    def order(self) -> Iterator[int]:
        """Yield the numbers of all that wait, the first to go first; nothing may change between."""
        leads = self._shares.leads()
        for rank in sorted(self._lines):
            lines = self._lines[rank]
            tenants = sorted(lines, key=leads.__getitem__)
            for _, equal in groupby(tenants, key=leads.__getitem__):
                for _, number in merge(*(lines[tenant] for tenant in equal)):
                    yield number

    def _refresh(self, planner: Planner[P], now: float) -> None:
        """Estimate those again that were estimated longest ago: blocks came and went since."""
        due = now - self._settings.refresh
        for _ in range(min(self._settings.window, len(self._estimated))):
            number, at = next(iter(self._estimated.items()))
            if at > due:
                return
            waiting = self._waiting[number]
            self._estimated[number] = now
            self._estimated.move_to_end(number)
            try:
                work = planner.remaining_seconds(waiting.request)
            except BatonError:
                # Its model left: planning says so when its turn comes.
                continue
            key = work + self._settings.age * waiting.arrival
            if key != waiting.key:
                self._leave_line(waiting)
                waiting.key = key
                self._enter_line(waiting)

    def _make_room(self, newcomer: Waiting) -> Waiting | None:
        """Take out the last one of a lower rank where the queue is full."""
        settings, tenant = self._settings, newcomer.tenant
        if self._tenants.get(tenant, 0) >= settings.max_tenant:
            last, whose = self._last(tenant), f"the tenant {tenant!r}"
        elif len(self._waiting) >= settings.max_total:
            last, whose = self._last(None), "all tenants"
        else:
            return None
        if self._waiting[last].rank <= newcomer.rank:
            raise BatonError(
                Reason.OVERLOADED,
                f"the router's queue is full of requests of {whose}",
                retry_after=RETRY_SECONDS,
            )
        return self.remove(last)

    def _last(self, tenant: str | None) -> int:
        """Return the number of the last one to go, of a tenant or of all."""
        leads = self._shares.leads()
        for rank in sorted(self._lines, reverse=True):
            lines = self._lines[rank]
            if tenant is None:
                return max((leads[name], line[-1]) for name, line in lines.items())[1][1]
            if tenant in lines:
                return lines[tenant][-1][1]
        raise LookupError("nothing waits")

    def _take(self, number: int) -> Waiting:
        waiting = self._waiting.pop(number)
        self._leave_line(waiting)
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

    def _enter_line(self, waiting: Waiting) -> None:
        lines = self._lines.setdefault(waiting.rank, {})
        insort(lines.setdefault(waiting.tenant, []), (waiting.key, waiting.number))

    def _leave_line(self, waiting: Waiting) -> None:
        lines = self._lines[waiting.rank]
        line = lines[waiting.tenant]
        del line[bisect_left(line, (waiting.key, waiting.number))]
        if not line:
            del lines[waiting.tenant]
            if not lines:
                del self._lines[waiting.rank]
