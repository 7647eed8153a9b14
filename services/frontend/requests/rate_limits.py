"""Response headers for the limits of the caller's key: OpenAI's `x-ratelimit-*`."""

import math
from collections.abc import Mapping
from time import monotonic

from baton.tenancy.limits.limit_set import LimitSet
from baton.tenancy.limits.spec import Measure

_NAMES: Mapping[Measure, str] = {Measure.REQUESTS: "requests", Measure.TOKENS: "tokens"}


def rate_limits(limits: LimitSet, now: float | None = None) -> list[tuple[str, str]]:
    """Return the headers for requests and tokens per minute, as far as they are limited.

    Args:
        limits: limits of the key, its project and its tenant; the header shows the one with the
            least remaining.
        now: a monotonic clock, in seconds.
    """
    found: list[tuple[str, str]] = []
    for measure, headroom in limits.headroom(monotonic() if now is None else now).items():
        name = _NAMES[measure]
        found.append((f"x-ratelimit-limit-{name}", str(headroom.limit)))
        found.append((f"x-ratelimit-remaining-{name}", str(headroom.remaining)))
        found.append((f"x-ratelimit-reset-{name}", duration(headroom.reset_seconds)))
    return found


def duration(seconds: float) -> str:
    """Return a duration in OpenAI's format: `120ms`, `1s`, `6m0s`; rounded up."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
