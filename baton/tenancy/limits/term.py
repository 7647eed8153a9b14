"""A term: what a frontend and the owner of a limit have told each other since they began."""

import math
from dataclasses import dataclass

from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import Limit

ANSWER_SECONDS = 0.25
"""A question that was not answered for so long may be asked again."""
_EARLIER_SECONDS = 0.05
"""Between two questions, where a request needs less than the one that was told to wait."""


@dataclass(slots=True)
class Term:
    """Sums since the term began, what is to be asked, and until when that is of no use."""

    number: int = 0
    base: int = 0
    """Requests that ran when it began."""
    granted: int = 0
    returned: int = 0
    answered: bool = False
    """Whether the owner has answered in this term."""
    chunk: int = 0
    """Units that may be here ahead of need."""
    changed: bool = False
    """Whether the owner is to be told without being asked."""
    _told: int = 0
    """Units spent, as the owner was told last."""
    _told_at: float = -math.inf
    _ahead: bool = False
    _confirm: bool = False
    _need: int = 0
    _want: int = 0
    _refused_need: int = 0
    """Of the question that was told to wait."""
    _asked_at: float = -math.inf
    _asking: bool = False
    _ask_at: float = -math.inf
    _left: int = 0
    _left_at: float = 0.0

    @property
    def open(self) -> bool:
        """Whether something is to be told, or may not have reached the owner."""
        return self.changed or self._asking

    @property
    def has_message(self) -> bool:
        """Whether there is something to say."""
        return self.changed or self._ahead or self._need > 0

    def waits(self, now: float) -> bool:
        """Return whether a question was not answered yet, and may still be."""
        return self._asking and now - self._asked_at < ANSWER_SECONDS

    def overdue(self, now: float) -> bool:
        """Return whether a question was not answered in time."""
        return self._asking and not self.waits(now)

    def unreported(self, kept: int) -> bool:
        """Return whether the owner takes more units to be here than the `kept` that are."""
        return self.granted - kept > self._told

    def report_if_quiet(self, kept: int, seconds: float, now: float) -> None:
        """Tell the owner what was spent since, if it was told nothing for so long."""
        if self.unreported(kept) and not self._asking and now - self._told_at >= seconds:
            self.changed = True

    def want(self, need: int) -> None:
        """Ask for units that a request lacks, with the next message."""
        self._need = min(self._need or need, need)
        self._want += need

    def want_ahead(self, now: float) -> bool:
        """Ask for a chunk with the next message; return False where that is of no use now."""
        self._ahead = not self.waits(now) and now >= self._ask_at
        return self._ahead

    def say_again(self) -> None:
        """Tell the owner what it may not have got, and have it answer."""
        self._asking = False
        self._confirm = self.changed = True

    def seconds_to_wait(self, need: int, limit: Limit, now: float) -> float:
        """Return 0 where to ask for so many units is of use now, or they are asked for already."""
        if self._asking or now >= self._ask_at:
            return 0.0
        if need < self._refused_need:
            since = now - self._left_at
            left = self._left + since * limit.per_minute / 60
            if since >= _EARLIER_SECONDS and left >= need:
                return 0.0
        return max(0.001, self._ask_at - now)

    def ask(self, limit: Limit, kept: int, now: float, *, ahead: bool, recent: int = 0) -> Ask:
        """Return the message to the owner, and note that it was asked if it is a question.

        Args:
            limit: as it is now.
            kept: units of this term that are here, requests that run among them.
            now: a monotonic clock, in seconds.
            ahead: whether chunks ahead of need are of use.
            recent: units that were granted lately, in any term.
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
            # With nothing here, nothing more may be said for long: be sure that it was heard.
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
        """Take in an answer; return the units that it grants."""
        units = max(0, answer.granted - self.granted)
        self.granted += units
        self.answered = True
        self.chunk = answer.chunk
        self._left, self._left_at = answer.left, now
        self._ask_at = now + answer.wait
        self._asking = False
        return units

    def in_bucket(self, limit: Limit, now: float) -> int:
        """Return about how many units are left in the bucket."""
        return self._left + int((now - self._left_at) * limit.per_minute / 60)
