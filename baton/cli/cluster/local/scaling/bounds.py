"""PoolBounds of the pools of a local cluster, and the settings that scaling needs. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from baton.cli.shared.errors import CommandError

IDLE_SECONDS = 60
"""Without requests for this long, pools go to zero, unless `scaling.idle_seconds` is set."""
KEEP_SECONDS = 86_400
_FORM = re.compile(r"(\d{1,4}):(\d{1,4})", re.ASCII)


class PoolBounds(NamedTuple):
    """The fewest and most workers of each pool."""

    least: int
    most: int

    @property
    def first(self) -> int:
        """Workers that a cluster starts with: its model is to be known."""
        return max(1, self.least)


def parse_bounds(text: str, highest: int) -> PoolBounds | None:
    """Return the bounds in the value of --autoscale; None: it is empty.

    Args:
        text: MIN:MAX.
        highest: most workers that a cluster may have of each role.

    Raises:
        CommandError: it is no such value.
    """
    if not text:
        return None
    match = _FORM.fullmatch(text)
    bounds = PoolBounds(int(match[1]), int(match[2])) if match is not None else PoolBounds(1, 0)
    if not bounds.least <= bounds.most <= highest or not bounds.most:
        raise CommandError(
            f"--autoscale is {text!r}: use MIN:MAX, such as 1:4, with MIN from 0 to MAX and MAX "
            f"from 1 to {highest}."
        )
    return bounds


def router_settings(bounds: PoolBounds | None, given: Collection[str]) -> dict[str, str]:
    """Return settings of routers whose number has these bounds, except those given."""
    if bounds is None:
        return {}
    settings = {
        "BATON_SCALING_MIN_REPLICAS": str(bounds.first),
        "BATON_SCALING_MAX_REPLICAS": str(bounds.most),
    }
    if not bounds.least:
        settings["BATON_SCALING_IDLE_SECONDS"] = str(IDLE_SECONDS)
    return _without(settings, given)


def worker_settings(bounds: PoolBounds | None, given: Collection[str]) -> dict[str, str]:
    """Return settings of workers of such a pool, except those given."""
    return {} if bounds is None or bounds.least else kept_models(given)


def kept_models(given: Collection[str]) -> dict[str, str]:
    """Return settings of workers whose models stay known without them, except those given."""
    return _without({"BATON_CLUSTER_MODEL_KEEP_SECONDS": str(KEEP_SECONDS)}, given)


def _without(settings: Mapping[str, str], given: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in given}
