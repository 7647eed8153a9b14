"""Which receivers get the free places of a process: those that hang are left few. Pure."""

import math
import random
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

_REMEMBERED = 4096
"""Receivers of each speed. One that is forgotten counts as new."""


class EventReceiver(NamedTuple):
    """Where events go: an endpoint, or a callback."""

    tenant: str
    endpoint: UUID


class PlaceLimits(NamedTuple):
    """Attempts in progress of a process."""

    all: int = 64
    """A quarter is for quick receivers alone."""
    new: int = 48
    """To receivers that are new or slow."""
    slow: int = 32
    """To receivers that are slow."""
    quick_each: int = 4
    """To one receiver that is quick; others have one place."""


class _Speed(IntEnum):
    """How long a receiver's latest attempt took, whatever came of it."""

    QUICK = 0
    NEW = 1
    """There was none yet."""
    SLOW = 2


class DeliveryPlaces:
    """The attempts in progress of a process, and which receivers get the next ones.

    Args:
        slow_seconds: a receiver whose attempt takes longer, or has taken longer by now, is slow.
        limits: of attempts in progress.
        draw: returns a number from 0 to 1: the order of equals.
    """

    def __init__(
        self,
        slow_seconds: float,
        limits: PlaceLimits | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._slow_seconds = slow_seconds
        self._limits = limits or PlaceLimits()
        self._draw = draw
        self._running: dict[Hashable, tuple[EventReceiver, float]] = {}
        """Attempts, and when they began; infinite once it is known how long they took."""
        self._speeds = {
            speed: OrderedDict[EventReceiver, None]() for speed in (_Speed.QUICK, _Speed.SLOW)
        }

    @property
    def full(self) -> bool:
        """Whether no receiver can get a place."""
        return len(self._running) >= self._limits.all

    def begin(self, attempt: Hashable, receiver: EventReceiver, now: float) -> None:
        """Take a place for an attempt at a time of a monotonic clock."""
        self._running[attempt] = receiver, now

    def learn(self, attempt: Hashable, seconds: float) -> None:
        """Take how long the receiver of an attempt took."""
        receiver, _ = self._running[attempt]
        self._running[attempt] = receiver, math.inf
        self._remember(receiver, _Speed.SLOW if seconds > self._slow_seconds else _Speed.QUICK)

    def end(self, attempt: Hashable) -> None:
        """Free an attempt's place."""
        del self._running[attempt]

    def allocate(self, waiting: Sequence[EventReceiver], now: float) -> Counter[EventReceiver]:
        """Return how many attempts to begin at which receivers.

        A place goes to the tenant with the fewest attempts in progress, and there to the receiver
        with the fewest.

        Args:
            waiting: receivers with deliveries that are due.
            now: time of the clock of `begin`.
        """
        for receiver, began in self._running.values():
            if now - began > self._slow_seconds:
                self._remember(receiver, _Speed.SLOW)
        here = Counter(receiver for receiver, _ in self._running.values())
        speeds = Counter(self._speed(receiver) for receiver, _ in self._running.values())
        tenants = Counter(receiver.tenant for receiver, _ in self._running.values())
        queues: dict[str, list[tuple[int, _Speed, float, EventReceiver]]] = defaultdict(list)
        for receiver in waiting:
            entry = here[receiver], self._speed(receiver), self._draw(), receiver
            queues[receiver.tenant].append(entry)
        for queue in queues.values():
            heapify(queue)
        turns = [(tenants[tenant], self._draw(), tenant) for tenant in queues]
        heapify(turns)
        found: Counter[EventReceiver] = Counter()
        while turns:
            count, order, tenant = heappop(turns)
            queue = queues[tenant]
            while queue:
                running, speed, drawn, receiver = heappop(queue)
                if running < self._each(speed) and self._has_room(speeds, speed):
                    speeds[speed] += 1
                    found[receiver] += 1
                    heappush(queue, (running + 1, speed, drawn, receiver))
                    heappush(turns, (count + 1, order, tenant))
                    break
        return found

    def _each(self, speed: _Speed) -> int:
        return self._limits.quick_each if speed is _Speed.QUICK else 1

    def _has_room(self, speeds: "Counter[_Speed]", speed: _Speed) -> bool:
        slow, new = speeds[_Speed.SLOW], speeds[_Speed.NEW]
        return (
            speeds.total() < self._limits.all
            and (speed is _Speed.QUICK or slow + new < self._limits.new)
            and (speed is not _Speed.SLOW or slow < self._limits.slow)
        )

    def _speed(self, receiver: EventReceiver) -> _Speed:
        for speed, receivers in self._speeds.items():
            if receiver in receivers:
                return speed
        return _Speed.NEW

    def _remember(self, receiver: EventReceiver, speed: _Speed) -> None:
        other = _Speed.QUICK if speed is _Speed.SLOW else _Speed.SLOW
        self._speeds[other].pop(receiver, None)
        known = self._speeds[speed]
        known[receiver] = None
        known.move_to_end(receiver)
        if len(known) > _REMEMBERED:
            known.popitem(last=False)
