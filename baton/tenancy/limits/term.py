"""A term: the messages between a frontend and the owner of a limit since they began."""

import math
from dataclasses import dataclass

from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import Limit

ANSWER_SECONDS = 0.25
"""A request for units that was not answered for this long may be repeated."""
_EARLIER_SECONDS = 0.05
"""Time between two requests, if one needs less than the request that was told to wait."""


@dataclass(slots=True)
class Term:
    """Sums since the term began, what to ask for, and until when asking is useless."""

    number: int = 0
    base: int = 0
    """Requests that ran when it began."""
    granted: int = 0
    returned: int = 0
    answered: bool = False
    """Whether the owner has answered in this term."""
    chunk: int = 0
    """Units that may be held here ahead of need."""
    changed: bool = False
    """Whether to report to the owner without being asked."""
    _told: int = 0
    """Spent units in the last report to the owner."""
    _told_at: float = -math.inf
    _ahead: bool = False
    _confirm: bool = False
    _need: int = 0
    _want: int = 0
    _refused_need: int = 0
    """Need of the request that was told to wait."""
    _asked_at: float = -math.inf
    _asking: bool = False
    _ask_at: float = -math.inf
    _left: int = 0
    _left_at: float = 0.0

    @property
    def open(self) -> bool:
        """Whether there is something to report, or a report may not have reached the owner."""
        return self.changed or self._asking

    @property
    def has_message(self) -> bool:
        """Whether there is a message for the owner."""
        return self.changed or self._ahead or self._need > 0

    def waits(self, now: float) -> bool:
        """Return whether a request is unanswered and may still be answered."""
        return self._asking and now - self._asked_at < ANSWER_SECONDS

    def overdue(self, now: float) -> bool:
        """Return whether a request was not answered in time."""
        return self._asking and not self.waits(now)

    def unreported(self, kept: int) -> bool:
        """Return whether the owner assumes more units here than the `kept` that exist."""
        return self.granted - kept > self._told

    def report_if_quiet(self, kept: int, seconds: float, now: float) -> None:
        """Report spent units to the owner, if it has received no report for `seconds`."""
        if self.unreported(kept) and not self._asking and now - self._told_at >= seconds:
            self.changed = True

    def want(self, need: int) -> None:
        """Ask for units that a request lacks, with the next message."""
        self._need = min(self._need or need, need)
        self._want += need

    def want_ahead(self, now: float) -> bool:
        """Ask for a chunk with the next message; return False if that is useless now."""
        self._ahead = not self.waits(now) and now >= self._ask_at
        return self._ahead

    def say_again(self) -> None:
        """Send the last report again, which the owner may not have received, and request a
        reply."""
        self._asking = False
        self._confirm = self.changed = True

    def seconds_to_wait(self, need: int, limit: Limit, now: float) -> float:
        """Return 0 if asking for `need` units is useful now, or they were already asked for."""
        if self._asking or now >= self._ask_at:
            return 0.0
        if need < self._refused_need:
            since = now - self._left_at
            left = self._left + since * limit.per_minute / 60
            if since >= _EARLIER_SECONDS and left >= need:
                return 0.0
        return max(0.001, self._ask_at - now)

    def ask(self, limit: Limit, kept: int, now: float, *, ahead: bool, recent: int = 0) -> Ask:
        """Return the message to the owner, and record the time if it asks for units.

        Args:
            limit: the current limit.
            kept: units of this term held here, including running requests.
            now: a monotonic clock, in seconds.
            ahead: whether chunks ahead of need are useful.
            recent: units recently granted, in any term.
        """
        ask = Ask(
            limit,
            self.number,
            self.base,
            self.granted,
            self.granted - kept,
            self.returned,
            self._need,
            self._want,
            ahead and bool(self._need or self._ahead),
            # With nothing held here, there may be no message for long: make sure that it was
            # received.
            self._confirm or not kept,
            recent=recent,
        )
        self._told, self._told_at = ask.spent, now
        if not ask.is_report:
            self._asking, self._asked_at = True, now
        self._refused_need = self._need
        self._need = self._want = 0
        self._ahead = self._confirm = self.changed = False
        return ask

    def receive(self, answer: LimitGrant, now: float) -> int:
        """Handle a reply; return the units that it grants."""
        units = max(0, answer.granted - self.granted)
        self.granted += units
        self.answered = True
        self.chunk = answer.chunk
        self._left, self._left_at = answer.left, now
        self._ask_at = now + answer.wait
        self._asking = False
        return units

    def in_bucket(self, limit: Limit, now: float) -> int:
        """Return approximately how many units remain in the bucket."""
        return self._left + int((now - self._left_at) * limit.per_minute / 60)
