"""Whether a request that comes would have its first token in time, by the queue's own plan."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain

from baton.errors import BatonError, Reason
from services.router.admission.forecast import Forecast
from services.router.admission.lines import Lines
from services.router.admission.waiting import P, Planner, Waiting

RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0


def check_in_time(
    newcomer: Waiting,
    lines: Lines,
    planner: Planner[P],
    now: float,
    factor: float = 1.0,
) -> None:
    """Refuse a request that would be late, or make one late that is equal but for its key.

    It looks at all that would go before it and at those that are equal to it. Only one that nothing
    else refuses is planned: most of those that are refused are not.

    Args:
        newcomer: the request, with its work and key; it is in `lines` already.
        lines: all that wait, in order.
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
    forecast, before, left = Forecast(queues.values()), 0.0, newcomer.due - now
    for group in lines.groups(held=True):
        entries = chain.from_iterable(group.lines.values())
        if not group.holds(newcomer):
            before += sum([other.work for _, _, other in entries])
            continue
        ordered = sorted(entries)
        place = bisect_left(ordered, (newcomer.key, newcomer.number, newcomer))
        before += sum([other.work for _, _, other in ordered[:place]])
        begins = forecast.begins(before)
        if factor * (begins + newcomer.work) > left:
            raise too_late(factor * (begins + newcomer.work), left)
        behind = [other for _, _, other in ordered[place + 1 :]]
        _check_behind(newcomer, behind, before, forecast, now, factor)
        plan = planner.plan(newcomer, {}, now)
        seconds = factor * max(begins + plan.prefill_seconds, plan.ttft_seconds)
        if seconds > left:
            raise too_late(seconds, left)
        return


def _check_behind(
    newcomer: Waiting,
    behind: Sequence[Waiting],
    before: float,
    forecast: Forecast,
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
        before: seconds of all that goes before the newcomer.
        forecast: of the workers.
        now: a monotonic clock, in seconds.
        factor: times as long as predicted, as most first tokens take.
    """
    before += newcomer.work
    last = forecast.begins(before + sum([other.work for other in behind]))
    for other in behind:
        work, due = other.work, other.due
        left = due - now
        # Nobody begins later than after all others.
        if factor * (last + work) > left > other.arrival - due:
            seconds = factor * (forecast.begins(before) + work)
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
        f"the first token would come in {seconds:.1f} s, and is wanted in {max(0.0, wanted):.1f} s",
        retry_after=min(MAX_RETRY_SECONDS, max(RETRY_SECONDS, missing)),
    )
