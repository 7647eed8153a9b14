"""Places of a class in running batches. Pure."""

import math

from services.router.state.fleet import Fleet
from services.router.state.instances import Role

_AHEAD = 4
"""Of so many places one more sequence may wait, so that none runs empty."""


def class_places(fleet: Fleet, rank: int) -> int | None:
    """Return how many sequences of a class workers would run and have wait; None: not known.

    Places of all workers that decode, without those that sequences of higher classes have or wait
    for, and some more to wait.

    Args:
        fleet: the workers.
        rank: of the class.
    """
    places, known = 0, False
    for model in fleet.models:
        for worker in fleet.registered(model):
            report = fleet.report(worker.id)
            unfit = worker.role is Role.PREFILL or worker.draining
            if unfit or report is None or not report.max_running or report.draining:
                continue
            known = True
            higher = sum(one.running + one.waiting for one in report.classes if one.rank < rank)
            higher += fleet.tickets.in_flight(worker.id, rank - 1).sequences
            places += max(0, report.max_running - higher)
    return places + math.ceil(places / _AHEAD) if known else None
