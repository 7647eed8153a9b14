"""Whether a new request would have its first token in time, by the queue's own plan."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import chain

from baton.errors import BatonError, Reason
from services.router.admission.forecast import Forecast
from services.router.admission.lines import Entry, Lines, QueueGroup
from services.router.admission.shares.tier_shares import TierShares
from services.router.admission.waiting import P, Planner, WaitingRequest

RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0


def check_in_time(
    newcomer: WaitingRequest,
    lines: Lines,
    tiers: TierShares,
    planner: Planner[P],
    now: float,
    factor: float = 1.0,
) -> None:
    """Reject a request that would be late, or would make late one equal to it except for its key.

    Considers all requests ahead of it and those equal to it. Of other tiers, as much counts as
    ahead as they receive by the time its own tier reaches it. The request is planned only once
    every cheaper check has passed, as most rejected requests fail one of those.

    Args:
        newcomer: the request, with its work and key; already in `lines`.
        lines: all waiting requests, in order.
        tiers: of the tenants.
        planner: knows the workers' current state.
        now: a monotonic clock, in seconds.
        factor: ratio of actual to predicted seconds that covers most first tokens.

    Raises:
        BatonError: OVERLOADED, with the missing seconds as the time to retry after, also if it
            would be placed after its `place_by`; or what planning raises.
    """
    queues = planner.queue_seconds(now, newcomer.rank[1])
    if not queues:
        return
    forecast, left = Forecast(queues.values()), newcomer.due - now
    section, tier = lines.section(newcomer.priority_class), newcomer.rank[0]
    first = before = 0.0
    others: dict[int, float] = {}
    ordered: list[Entry] = []
    for group in lines.groups(held=True):
        if group.section > section:
            break
        if group.section == section and group.rank[0] != tier:
            others[group.rank[0]] = others.get(group.rank[0], 0.0) + _work(group)
        elif group.holds(newcomer):
            ordered = sorted(chain.from_iterable(group.lines.values()))
        elif not ordered:
            before += _work(group)
            if group.section < section:
                first = before
    speed = planner.tokens_per_second() / len(queues)

    def begins(work: float) -> float:
        """Return when a worker begins what follows this much work, with its tier's share."""
        return forecast.begins(work + tiers.before(tier, work - first, others, speed))

    place = bisect_left(ordered, (newcomer.key, newcomer.number, newcomer))
    before += sum([other.work for _, _, other in ordered[:place]])
    begin = begins(before)
    if now + begin > newcomer.place_by:
        raise waits_too_long(begin, newcomer.place_by - now)
    if newcomer.due == math.inf:
        return
    if factor * (begin + newcomer.work) > left:
        raise too_late(factor * (begin + newcomer.work), left)
    behind = [other for _, _, other in ordered[place + 1 :]]
    _check_behind(newcomer, behind, before, begins, now, factor)
    plan = planner.plan(newcomer, {}, now)
    seconds = factor * max(begin + plan.prefill_seconds, plan.ttft_seconds)
    if seconds > left:
        raise too_late(seconds, left)


def _work(group: QueueGroup) -> float:
    """Return the seconds of computation of a group."""
    return sum([other.work for _, _, other in chain.from_iterable(group.lines.values())])


def _check_behind(
    newcomer: WaitingRequest,
    behind: Sequence[WaitingRequest],
    before: float,
    begins: Callable[[float], float],
    now: float,
    factor: float,
) -> None:
    """Reject a newcomer if a request behind it would become late, or later than it is.

    Without this, an admitted request that is late because of wrong predictions would wait for all
    shorter ones. It no longer counts once it is late by as much again as the time it had: then
    something other than the requests ahead delays it.

    Args:
        newcomer: the request.
        behind: requests behind it because of their keys alone, in order.
        before: seconds of all work ahead of the newcomer, except other tiers'.
        begins: returns when a worker begins what comes after so many of these seconds.
        now: a monotonic clock, in seconds.
        factor: ratio of actual to predicted seconds that covers most first tokens.
    """
    before += newcomer.work
    last = begins(before + sum([other.work for other in behind]))
    for other in behind:
        work, due = other.work, other.due
        left = due - now
        # None begins later than after all others.
        if factor * (last + work) > left > other.arrival - due:
            seconds = factor * (begins(before) + work)
            if seconds > left:
                raise too_late(seconds, left)
        before += work


def waits_too_long(seconds: float, most: float) -> BatonError:
    """Return the error for a request that would wait for this many seconds.

    Args:
        seconds: until a worker begins with it.
        most: seconds that it may wait.
    """
    return BatonError(
        Reason.OVERLOADED,
        f"the predicted wait is {seconds:.1f} s; the request allows {max(0.0, most):.1f} s",
        retry_after=min(MAX_RETRY_SECONDS, max(RETRY_SECONDS, seconds - most)),
    )


def too_late(seconds: float, wanted: float) -> BatonError:
    """Return the error for a request whose first token would come in this many seconds.

    Args:
        seconds: until it would come.
        wanted: seconds until it is due.
    """
    missing = seconds - wanted
    return BatonError(
        Reason.OVERLOADED,
        f"the predicted time to first token is {seconds:.1f} s; the request allows "
        f"{max(0.0, wanted):.1f} s",
        retry_after=min(MAX_RETRY_SECONDS, max(RETRY_SECONDS, missing)),
    )
