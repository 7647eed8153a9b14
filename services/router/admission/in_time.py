"""Whether a request that comes would have its first token in time, by the queue's own plan."""

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
    """Refuse a request that would be late, or make one late that is equal but for its key.

    It looks at all that would go before it and at those that are equal to it. Of other tiers so
    much goes before it as they are given while its own tier comes to it. Only one that nothing else
    refuses is planned: most of those that are refused are not.

    Args:
        newcomer: the request, with its work and key; it is in `lines` already.
        lines: all that wait, in order.
        tiers: of the tenants.
        planner: knows the workers as they are now.
        now: a monotonic clock, in seconds.
        factor: times as long as predicted, as most first tokens take.

    Raises:
        BatonError: OVERLOADED, with the seconds that are missing as the time to retry after. Or
            what planning raises.
    """
    queues = planner.queue_seconds(now)
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
        """Return when a worker begins what comes after so much work that goes by its tier."""
        return forecast.begins(work + tiers.before(tier, work - first, others, speed))

    place = bisect_left(ordered, (newcomer.key, newcomer.number, newcomer))
    before += sum([other.work for _, _, other in ordered[:place]])
    begin = begins(before)
    if factor * (begin + newcomer.work) > left:
        raise too_late(factor * (begin + newcomer.work), left)
    behind = [other for _, _, other in ordered[place + 1 :]]
    _check_behind(newcomer, behind, before, begins, now, factor)
    plan = planner.plan(newcomer, {}, now)
    seconds = factor * max(begin + plan.prefill_seconds, plan.ttft_seconds)
    if seconds > left:
        raise too_late(seconds, left)


def _work(group: QueueGroup) -> float:
    """Return the seconds that a group has to compute."""
    return sum([other.work for _, _, other in chain.from_iterable(group.lines.values())])


def _check_behind(
    newcomer: WaitingRequest,
    behind: Sequence[WaitingRequest],
    before: float,
    begins: Callable[[float], float],
    now: float,
    factor: float,
) -> None:
    """Refuse a newcomer for which one of those behind it would be late, or later than it is.

    One that was admitted and is late, since predictions were wrong, would else wait for all that is
    shorter. It no more counts once it is late by as much again as it had: then something holds it
    that is not those before it.

    Args:
        newcomer: the request.
        behind: those that go later for their keys alone, in order.
        before: seconds of all that goes before the newcomer, but for other tiers'.
        begins: returns when a worker begins what comes after so many of these seconds.
        now: a monotonic clock, in seconds.
        factor: times as long as predicted, as most first tokens take.
    """
    before += newcomer.work
    last = begins(before + sum([other.work for other in behind]))
    for other in behind:
        work, due = other.work, other.due
        left = due - now
        # Nobody begins later than after all others.
        if factor * (last + work) > left > other.arrival - due:
            seconds = factor * (begins(before) + work)
            if seconds > left:
                raise too_late(seconds, left)
        before += work


def too_late(seconds: float, wanted: float) -> BatonError:
    """Return why a request is refused whose first token would come in so many seconds.

    Args:
        seconds: until it would come.
        wanted: seconds until it is to be there.
    """
    missing = seconds - wanted
    return BatonError(
        Reason.OVERLOADED,
        f"the predicted time to first token is {seconds:.1f} s; the request allows "
        f"{max(0.0, wanted):.1f} s",
        retry_after=min(MAX_RETRY_SECONDS, max(RETRY_SECONDS, missing)),
    )
