"""Shares of priority classes: floors by a clock of tokens, ceilings by a bucket, running counts.

A class with a floor has a clock. The global clock is what was charged to all requests since
something began to wait; that of a class advances by its tokens ÷ floor with each request placed
because of the floor. A waiting class behind the global clock goes first. So it receives its floor
of what is charged while it waits, less one request; what is placed by its rank is in addition to
that, and never counts against it.

A ceiling is a bucket of prompt tokens that fills with time. A request is placed while the bucket is
not empty, and may overdraw it: so in any period a class computes at most the ceiling of that
period, what the bucket holds, and one request.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from services.router.admission.shares.classes import DEFAULT_ADMISSION, AdmissionPolicy

BURST_SECONDS = 10.0
"""Seconds of its ceiling that a class may save up."""


@dataclass(slots=True)
class _Class:
    clock: float = 0.0
    waiting: int = 0
    running: int = 0
    bucket: float | None = None
    """Tokens; None: full."""


class ClassShares:
    """State of the classes; only buckets survive idle times. Owned by one event loop.

    Args:
        policy: of the classes.
    """

    def __init__(self, policy: AdmissionPolicy = DEFAULT_ADMISSION) -> None:
        self.policy = policy
        self._classes: dict[int, _Class] = {}
        self._clock = 0.0
        self._open = 0
        """Requests that wait or run."""
        self._filled_at: float | None = None
        self._speed = 0.0

    def __len__(self) -> int:
        """Return the number of classes with state."""
        return len(self._classes)

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of classes; a new one applies from the next request on."""
        return self._policy

    @policy.setter
    def policy(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self.limited = any(one.ceiling < 1 for one in policy.classes.values())
        """Whether a class has a ceiling, so that buckets are to be filled."""

    def running(self, priority_class: int) -> int:
        """Return how many requests of a class run."""
        known = self._classes.get(priority_class)
        return known.running if known is not None else 0

    def join(self, priority_class: int) -> None:
        """Record that a request begins to wait."""
        known = self._classes.setdefault(priority_class, _Class())
        if not known.waiting:
            known.clock = max(known.clock, self._clock)
        known.waiting += 1
        self._open += 1

    def leave(self, priority_class: int) -> None:
        """Record that a request that waited will not run."""
        self._classes[priority_class].waiting -= 1
        self._close()

    def begin(self, priority_class: int, cost: float, prompt_tokens: int) -> bool:
        """Charge a class for a request that waited and runs now.

        Args:
            priority_class: of the request.
            cost: in tokens, as charged to tenants.
            prompt_tokens: prompt tokens to be computed.

        Returns:
            Whether it is placed because of the floor.
        """
        known, owed = self._classes[priority_class], self.owed(priority_class)
        self._clock += cost
        if owed:
            known.clock += cost / self._policy.of(priority_class).floor
        known.waiting -= 1
        known.running += 1
        self._take(known, priority_class, prompt_tokens)
        return owed

    def begin_now(self, priority_class: int, cost: float, prompt_tokens: int) -> bool:
        """Charge a class for a request that runs without waiting, as `join` and `begin` would.

        Args:
            priority_class: of the request.
            cost: in tokens, as charged to tenants.
            prompt_tokens: prompt tokens to be computed.

        Returns:
            Whether it is placed because of the floor.
        """
        known = self._classes.get(priority_class)
        if known is None:
            known = self._classes[priority_class] = _Class()
        policy = self._policy.classes.get(priority_class)
        owed = False
        if not known.waiting:
            known.clock = max(known.clock, self._clock)
        elif policy is not None and policy.floor and known.clock < self._clock:
            owed = True
            known.clock += cost / policy.floor
        self._clock += cost
        known.running += 1
        self._open += 1
        if policy is not None:
            self._take(known, priority_class, prompt_tokens)
        return owed

    def settle(self, priority_class: int, cost: float, prompt_tokens: int, *, owed: bool) -> None:
        """Correct what a request was charged, once its ticket is returned.

        Args:
            priority_class: of the request.
            cost: its actual cost less what it was charged.
            prompt_tokens: prompt tokens computed less those predicted.
            owed: what `begin` returned.
        """
        known, policy = self._classes[priority_class], self._policy.classes.get(priority_class)
        self._clock += cost
        known.running -= 1
        if policy is not None:
            if owed and policy.floor:
                known.clock += cost / policy.floor
            self._take(known, priority_class, prompt_tokens)
        self._close()

    def fill(self, now: float, tokens_per_second: float) -> None:
        """Fill buckets up to now.

        Args:
            now: a monotonic clock, in seconds.
            tokens_per_second: prompt tokens that all workers together can compute.
        """
        passed = now - self._filled_at if self._filled_at is not None else 0.0
        self._filled_at, self._speed = now, tokens_per_second
        for priority_class, known in self._classes.items():
            if known.bucket is not None:
                size = self._size(priority_class)
                known.bucket += size / BURST_SECONDS * passed
                if known.bucket >= size:
                    known.bucket = None

    def owed(self, priority_class: int) -> bool:
        """Return whether a waiting class goes first, because it received less than its floor."""
        known = self._classes[priority_class]
        return known.clock < self._clock and self._policy.of(priority_class).floor > 0

    def held(self, priority_class: int) -> bool:
        """Return whether a class has reached its ceiling or its limit of running requests."""
        policy = self._policy.classes.get(priority_class)
        if policy is None:
            return False
        if policy.max_running and self.running(priority_class) >= policy.max_running:
            return True
        return self._empty(priority_class)

    def next_turn(self, waiting: Iterable[int], now: float) -> float:
        """Return when the bucket of a class that waits for it is no longer empty.

        Args:
            waiting: classes with waiting requests.
            now: when `fill` was called last.

        Returns:
            A time of the same clock, or now; infinite: none waits for its bucket, or no bucket
            fills
                because there are no workers.
        """
        empty = [one for one in waiting if self._empty(one)] if self._speed > 0 else []
        return now + min((self.debt_seconds(one) for one in empty), default=math.inf)

    def debt_seconds(self, priority_class: int) -> float:
        """Return the seconds until the bucket of a class is no longer empty."""
        known = self._classes.get(priority_class)
        size = self._size(priority_class)
        if known is None or known.bucket is None or not size:
            return 0.0
        return max(0.0, -known.bucket / (size / BURST_SECONDS))

    def _empty(self, priority_class: int) -> bool:
        known = self._classes.get(priority_class)
        if known is None or known.bucket is None or known.bucket > 0:
            return False
        return self._policy.of(priority_class).ceiling < 1

    def _size(self, priority_class: int) -> float:
        return self._policy.of(priority_class).ceiling * self._speed * BURST_SECONDS

    def _take(self, known: _Class, priority_class: int, tokens: int) -> None:
        if self._policy.of(priority_class).ceiling < 1:
            size = self._size(priority_class)
            known.bucket = min(size, (size if known.bucket is None else known.bucket) - tokens)

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._clock = 0.0
            for priority_class, known in list(self._classes.items()):
                known.clock = 0.0
                if known.bucket is None:
                    del self._classes[priority_class]
