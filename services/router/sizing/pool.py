"""The number of replicas that one pool is to have, from its needs over time."""

import math
from typing import NamedTuple

from services.router.sizing.decision import Need, SizingDecision, SizingReason
from services.router.sizing.peaks import Peaks
from services.router.sizing.settings import SizingSettings

LARGEST_STEP = 5
"""A step down takes one replica, or this part of a pool."""
MARGIN = 0.1
"""Share of the replicas left that must not have been needed before one is taken away."""
_EPSILON = 1e-9
"""Sums of shares are rounded."""


class PoolFacts(NamedTuple):
    """What is known of a pool at one moment."""

    need: Need
    live: int
    """Replicas that take requests."""
    there: int
    """These, and those that start."""
    demanded: bool
    """Whether a request arrived lately, or waits."""
    busy: bool
    """Whether a replica has work."""
    wait_seconds: float
    """The p90 of predicted waits for the first token."""
    ttft_target: float
    missing: SizingReason | None
    """Why what is known of the demand is not all of it; None: it is."""
    covered: bool
    """Whether arrivals of the whole window are known."""


class PoolSizer:
    """Decides how many replicas a pool needs. Owned by one event loop.

    More are needed at once; fewer in small steps, each only if what is left was enough for
    `hold_seconds`, and first tokens would not wait for too long with so many. It depends on its own
    decisions, not on whether a scaler follows them.

    Args:
        settings: constants.
    """

    def __init__(self, settings: SizingSettings) -> None:
        self._settings = settings
        self._peaks = Peaks(settings.hold_seconds)
        self._decided: int | None = None
        """The last decision; None: there was none."""
        self._lowered_at = -math.inf
        self._known_since: float | None = None
        """Since when the need is known, but for moments."""
        self._known_at = -math.inf
        self._active_at = math.inf
        """When there was last a request, or may have been one; infinite: nothing is known."""
        self._woken_at: float | None = None
        """When there was last a request while no replica was live; None: not since one is."""

    def decide(self, facts: PoolFacts, now: float) -> SizingDecision | None:
        """Return what the pool needs; None: not enough is known to say.

        Args:
            facts: what is known now.
            now: a monotonic clock, in seconds; it never decreases.
        """
        settings, need = self._settings, facts.need
        missing = facts.missing
        if missing is None and not need.known:
            missing = SizingReason.HOLD_RATES
        self._observe(facts, missing, now)
        waking = self._woken_at is not None and now - self._woken_at < settings.hold_seconds
        if missing is None and not waking and self._is_idle(facts, now):
            self._decided = 0
            return SizingDecision(0, SizingReason.IDLE)
        lowest, reason = self._bounded(need)
        if lowest < settings.min_replicas and (lowest or waking or self._runs(facts)):
            lowest, reason = settings.min_replicas, SizingReason.FLOOR
        if waking:
            reason = SizingReason.WAKE
        decided = self._decided
        if decided is None:
            if not facts.covered and lowest <= facts.there and not waking:
                return None
            # What a scaler was told before is not known: no fewer than are there.
            decided = min(settings.max_replicas, max(lowest, facts.there))
            if not decided:
                return None
            self._lowered_at = now
        if lowest >= decided:
            self._decided = lowest
            return SizingDecision(lowest, reason if lowest else missing or SizingReason.IDLE)
        held: SizingReason | None = missing
        for fewer in range(max(lowest, decided - max(1, decided // LARGEST_STEP)), decided):
            held = missing or self._held(facts, fewer, now)
            if held is None:
                self._lowered_at, decided = now, fewer
                break
        self._decided = decided
        if held is None:
            held = reason if decided == lowest else SizingReason.HOLD_WINDOW
        return SizingDecision(decided, held)

    def _observe(self, facts: PoolFacts, missing: SizingReason | None, now: float) -> None:
        if facts.demanded or facts.busy:
            self._active_at = now
        if facts.live and self._woken_at is not None:
            # What woke it comes now: its request may wait where no router sees it.
            self._woken_at, self._active_at = None, now
        elif facts.demanded and not facts.live:
            self._woken_at = now
        self._peaks.add(facts.need.replicas, now)
        if missing is not None:
            return
        if self._known_since is None or now - self._known_at > self._settings.arrival_seconds:
            # For longer than arrivals are counted, it is not known what there was until now.
            self._known_since = self._active_at = now
        self._known_at = now

    def _bounded(self, need: Need) -> tuple[int, SizingReason]:
        """Return the need in whole replicas, at most the ceiling, and its reason."""
        most = self._settings.max_replicas
        if need.replicas > most:
            return most, SizingReason.CEILING
        return math.ceil(need.replicas - _EPSILON), need.reason

    def _runs(self, facts: PoolFacts) -> bool:
        """Return whether the pool is to have replicas: unless it was idle, and still is."""
        if self._decided == 0:
            return bool(facts.there) and (facts.demanded or facts.busy)
        return bool(self._decided or facts.there)

    def _is_idle(self, facts: PoolFacts, now: float) -> bool:
        """Return whether the pool was without requests for long enough to need no replica."""
        idle = self._settings.idle_seconds
        if not idle or not facts.covered or facts.demanded or facts.busy:
            return False
        return now - self._active_at >= idle

    def _held(self, facts: PoolFacts, fewer: int, now: float) -> SizingReason | None:
        """Return why the pool keeps its replicas although it needs fewer; None: so few are enough.

        Args:
            facts: what is known now.
            fewer: replicas that would be left.
            now: a monotonic clock, in seconds.
        """
        settings, since = self._settings, self._known_since
        if since is None or now - since < settings.hold_seconds:
            return SizingReason.HOLD_WINDOW
        if now - self._lowered_at < settings.arrival_seconds:
            return SizingReason.HOLD_WINDOW  # waits are those with more replicas
        if self._peaks.highest(now) > (1 - MARGIN) * fewer:
            return SizingReason.HOLD_WINDOW
        waits = facts.wait_seconds * max(1.0, facts.there / max(1, fewer))
        if waits > facts.ttft_target / 2:
            return SizingReason.HOLD_FIRST_TOKEN
        return None
