"""How many models of a local cluster have workers at the same time. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from baton.cli.cluster.local.models.local_model import ROLES, LocalModel
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.settings.models import MAX_MIN_STAY_SECONDS


class OnDemandRoom(NamedTuple):
    """Room for the workers of some models, which take turns."""

    models: int
    """Most models that have workers at the same time."""
    min_stay: float
    """Seconds for which a model has its workers at least."""


def room_of(options: ClusterOptions, models: Sequence[LocalModel]) -> OnDemandRoom | None:
    """Return the room that the options describe; None: every model has workers.

    Raises:
        CommandError: they describe none that these models can take turns in.
    """
    room, stay = options.on_demand, options.min_stay
    if room is None:
        return None
    if room < 1:
        raise CommandError(
            f"--on-demand is {room}: it must be at least 1, the number of models that have workers "
            "at the same time."
        )
    if room >= len(models):
        count = "1 model is" if len(models) == 1 else f"{len(models)} models are"
        raise CommandError(
            f"--on-demand is {room} and {count} named, so that all would have workers all the "
            "time: name more models with --model, or leave --on-demand out."
        )
    if not 0 <= stay <= MAX_MIN_STAY_SECONDS:
        raise CommandError(
            f"--min-stay is {stay:g}: it must be from 0 to {MAX_MIN_STAY_SECONDS} seconds."
        )
    if options.autoscale or options.pin:
        other = "--autoscale" if options.autoscale else "--pin"
        raise CommandError(
            f"--on-demand cannot be used with {other}, which needs workers that stay: leave one of "
            "them out."
        )
    return OnDemandRoom(room, stay)


def largest(models: Sequence[LocalModel], room: OnDemandRoom | None) -> list[LocalModel]:
    """Return the models with the most workers, as many as may run at the same time."""
    if room is None:
        return list(models)
    return sorted(models, key=lambda model: -sum(map(model.workers, ROLES)))[: room.models]
