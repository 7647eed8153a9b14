"""A limit's bucket, in the router that owns it: its content, and the units that frontends hold."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import Limit

CHUNK_SECONDS = 0.05
"""A frontend holds this many seconds of a limit ahead of need; at full use it asks this often."""
_PARTS = 60 * 10**9
"""Parts of a unit: a limit of 1 per minute gets one per nanosecond, so that sums are exact."""
_BUSY_WAIT_SECONDS = 0.05
"""Time between two requests to the owner while waiting for a request to end."""
_KEPT_SHARE = 8
"""Frontends with nothing to run keep at most an eighth of a concurrency limit."""


@dataclass(slots=True)
class _Holder:
    """A frontend, as the bucket knows it."""

    term: int
    granted: int
    spent: int = 0
    returned: int = 0
    turn: float = 0.0
    """When it may ask again."""

    @property
    def held(self) -> int:
        return self.granted - self.spent


class Bucket(ABC):
    """The remainder of a limit. Owned by a `LimitOwner`; bounded by the frontends that hold of it.

    At all times its content plus the units that frontends hold is at most the burst. So in any
    time `t` frontends use at most the burst plus the units that accrue in `t`.
    """

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.held = 0
        """Units that frontends hold and may still use, as far as they reported."""
        self.known = False
        """Whether `learn` was called."""
        self._recent: dict[str, int] = {}
        """Recent grants that each frontend reported first, until `learn`."""
        self._holders: dict[str, _Holder] = {}

    def answer(self, frontend: str, ask: Ask, now: float) -> LimitGrant | None:
        """Record a frontend's report, and grant what is available.

        Args:
            frontend: its incarnation.
            ask: its message.
            now: a monotonic clock, in seconds.

        Returns:
            None: there is nothing to send, or the message belongs to an earlier term.
        """
        if ask.limit.version >= self.limit.version:
            self.limit = ask.limit
        self._fill(now)
        if not self.known:
            self._recent.setdefault(frontend, ask.recent)
        holder = self._holders.get(frontend)
        if holder is not None and ask.term < holder.term:
            return None
        if holder is None or ask.term > holder.term:
            if ask.granted != ask.base:
                return self._answer(ask, 0, 0.0, restart=True)
            if holder is not None:
                self.drop(frontend)
            holder = self._holders[frontend] = _Holder(ask.term, ask.base)
            self.held += ask.base
        elif ask.granted > holder.granted:
            return self._answer(ask, 0, 0.0, restart=True)
        self._take_in(holder, ask)
        if ask.is_report:
            return None
        wait = self._grant(holder, ask, now)
        return self._answer(ask, holder.granted, wait)

    def lacks(self, frontend: str, ask: Ask, now: float) -> bool:
        """Record a frontend's report of recent grants; return whether it asks for more units than
        are available."""
        self._recent.setdefault(frontend, ask.recent)
        self._fill(now)
        return not ask.is_report and self.free < max(1, ask.need)

    def learn(self, now: float) -> None:
        """Account for all frontends' reports of recent grants, which are now complete."""
        self._fill(now)
        self._learn(sum(self._recent.values()), now)
        self.known = True
        self._recent.clear()

    def drop(self, frontend: str) -> None:
        """Forget a frontend: it is dead, or has started again."""
        holder = self._holders.pop(frontend, None)
        if holder is not None:
            self.held -= holder.held

    @property
    @abstractmethod
    def free(self) -> int:
        """Whole units that can be granted."""

    @property
    def unused(self) -> bool:
        """Whether a new bucket would be in the same state."""
        return not self.held and self.free >= self.limit.burst

    def _take_in(self, holder: _Holder, ask: Ask) -> None:
        if ask.spent > holder.spent:
            self.held -= ask.spent - holder.spent
            holder.spent = ask.spent
        if ask.returned > holder.returned:
            self._give_back(ask.returned - holder.returned)
            holder.returned = ask.returned

    def _grant(self, holder: _Holder, ask: Ask, now: float) -> float:
        """Grant what is available; return the seconds until it is useful to ask again."""
        # Grants that it has not received are in flight, for requests that are counted here again.
        coming = holder.granted - ask.granted
        want = max(0, max(ask.need, ask.want) - coming)
        need = max(0, ask.need - coming) or min(ask.need, want)
        chunk = self._chunk()
        ahead = max(0, chunk - (0 if ask.need else holder.held)) if ask.ahead else 0
        least = need or ahead
        if not least:
            return 0.0
        free = self.free
        if free < least:
            return self._wait(holder, max(least, chunk), now)
        units = min(free, want + ahead)
        self._take(units)
        self.held += units
        holder.granted += units
        return 0.0

    def _answer(self, ask: Ask, granted: int, wait: float, *, restart: bool = False) -> LimitGrant:
        return LimitGrant(
            ask.limit.id, ask.term, granted, self._chunk(), max(0, self.free), wait, restart
        )

    @abstractmethod
    def _fill(self, now: float) -> None:
        """Account for the elapsed time, and for the current limit."""

    @abstractmethod
    def _learn(self, recent: int, now: float) -> None:
        """Account for units that were recently granted by all routers."""

    @abstractmethod
    def _take(self, units: int) -> None:
        """Remove units for a frontend."""

    @abstractmethod
    def _give_back(self, units: int) -> None:
        """Return units to the bucket."""

    @abstractmethod
    def _chunk(self) -> int:
        """Return the units that a frontend may hold ahead of need; 0 or at least 2."""

    @abstractmethod
    def _wait(self, holder: _Holder, units: int, now: float) -> float:
        """Return the seconds until this many units are available for this frontend."""


class RateBucket(Bucket):
    """Bucket of a per-minute limit. It fills steadily, to at most the burst less the units held."""

    def __init__(self, limit: Limit, since: float) -> None:
        """Start empty at `since`, which may be before or after now, until `learn`."""
        super().__init__(limit)
        self._parts = 0
        self._at = int(since * 1e9)
        self._promised = since
        """Units that accrue until then are promised to waiting frontends."""
        self._room = math.inf
        """Until `learn`, the most parts by which the level may be too low: the true level never
        exceeds the capacity."""

    @property
    def free(self) -> int:
        return self._parts // _PARTS

    def _fill(self, now: float) -> None:
        at = int(now * 1e9)
        if at > self._at:
            self._parts += (at - self._at) * self.limit.per_minute
            self._at = at
        self._trim()

    def _trim(self) -> None:
        most = (self.limit.burst - self.held) * _PARTS
        self._parts = max(0, min(self._parts, most))
        if not self.known:
            self._room = max(0, min(self._room, most - self._parts))

    def _learn(self, recent: int, now: float) -> None:
        self._at = min(self._at, int(now * 1e9))
        self._promised = -math.inf
        self._parts += min(max(0, self.limit.burst - recent) * _PARTS, int(self._room))

    def _take(self, units: int) -> None:
        self._parts -= units * _PARTS

    def _give_back(self, units: int) -> None:
        self._parts += units * _PARTS
        self._trim()

    def _chunk(self) -> int:
        chunk = min(
            int(self.limit.per_minute / 60 * CHUNK_SECONDS),
            self.limit.burst // (2 * max(1, len(self._holders))),
        )
        return chunk if chunk >= 2 else 0

    def _wait(self, holder: _Holder, units: int, now: float) -> float:
        """Promise a turn: waiting frontends ask one after another, and find the units accrued
        since."""
        if holder.turn <= now:
            rate = self.limit.per_minute / 60
            filled = max(now, self._at / 1e9)  # it may start to fill only later
            turn = max(filled - self._parts / _PARTS / rate, self._promised) + units / rate
            holder.turn = max(now, min(turn, filled + self.limit.burst / rate))
            self._promised = holder.turn
        return holder.turn - now


class PlacesBucket(Bucket):
    """Bucket of a concurrency limit: slots, which return as requests end."""

    def __init__(self, limit: Limit, since: float) -> None:
        """Grant nothing before `since` or `learn`: until then frontends report their running
        requests."""
        super().__init__(limit)
        self._since = since
        self._open = False

    @property
    def free(self) -> int:
        return self.limit.burst - self.held if self._open else 0

    def _fill(self, now: float) -> None:
        self._open = self.known or now >= self._since

    def _learn(self, recent: int, now: float) -> None:  # noqa: ARG002  # they hold what runs
        self._open = True

    def _take(self, units: int) -> None:
        """Do nothing: slots that no frontend holds are free."""

    def _give_back(self, units: int) -> None:
        """Do nothing: slots that no frontend holds are free."""

    def _chunk(self) -> int:
        if 4 * self.free < self.limit.burst:
            return 0
        chunk = self.limit.burst // (_KEPT_SHARE * max(1, len(self._holders)))
        return chunk if chunk >= 2 else 0

    def _wait(self, holder: _Holder, units: int, now: float) -> float:  # noqa: ARG002  # none comes
        return max(_BUSY_WAIT_SECONDS, self._since - now)
