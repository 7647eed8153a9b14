"""Which turns of a conversation a prompt leaves out if it does not fit. Pure.

A turn begins with messages of the user and consists of steps: those messages, and each message of
the assistant with the outputs of its calls. Once a prompt is beyond its limit, the oldest turns are
left out, down to three quarters of the limit. Where the cut is follows from the history alone: it
is found by reading it from the beginning, so that each longer history is cut at the same place
until it is beyond the limit again. The prompt's prefix, and its KV, stay meanwhile.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence, Set
from itertools import accumulate
from typing import NamedTuple

from services.frontend.text.chat_template import ChatMessage

_PINNED = frozenset({"system", "developer"})
"""Roles of messages that are never left out."""
_KEPT = 3, 4
"""Of the limit, what is filled after a cut."""


class TurnCut(NamedTuple):
    """What is left out: messages before `start`, and of the turn that begins there, those between
    the user's and `resume`. Instructions stay."""

    start: int = 0
    """Index of a message."""
    resume: int = 0
    """Index of a message; not above `start`: the turn is whole."""


WHOLE = TurnCut()
"""Nothing is left out."""


class ConversationStep(NamedTuple):
    """Messages that are left out together."""

    messages: tuple[int, ...]
    """Their indexes."""
    user: bool
    """Whether they are the user's, and begin a turn."""


def steps_of(
    messages: Sequence[ChatMessage], summaries: Set[int] = frozenset()
) -> list[ConversationStep]:
    """Return the steps of a conversation, in order; instructions and summaries, whose indexes are
    given, belong to none."""
    steps: list[ConversationStep] = []
    for at, message in enumerate(messages):
        if message.role in _PINNED or at in summaries:
            continue
        user, last = message.role == "user", steps[-1] if steps else None
        if last is not None and last.user is user and message.role != "assistant":
            steps[-1] = ConversationStep((*last.messages, at), user)
        else:
            steps.append(ConversationStep((at,), user))
    return steps


class TurnCutter:
    """Finds the cut of one conversation.

    Args:
        steps: of the conversation.
        tokens: of each step.
        fixed: tokens of instructions, tools and the template's ends.
        cut: a cut that was made before, and stays.
    """

    def __init__(
        self,
        steps: Sequence[ConversationStep],
        tokens: Sequence[int],
        fixed: int,
        cut: TurnCut = WHOLE,
    ) -> None:
        self._steps = steps
        self._tokens = tokens
        self._fixed = fixed
        self._start = self._index(cut.start)
        """The first step that is not left out ..."""
        self._resume = max(self._start + 1, self._index(cut.resume))
        """... and the second one."""
        self._users = [at for at, step in enumerate(steps) if step.user]
        self._sums = [0, *accumulate(tokens)]

    def run(self, limit: int, added: int = 0) -> None:
        """Read the whole conversation, and cut where it is beyond a limit of tokens.

        Args:
            limit: tokens.
            added: tokens that come into the place of what is left out.
        """
        total, opened = self._fixed, self._start
        low = limit * _KEPT[0] // _KEPT[1] - added
        for at, step in enumerate(self._steps):
            if not self._kept(at):
                continue
            total += self._tokens[at]
            opened = at if step.user else opened
            if total > limit:
                while total > low and self._drop(opened, at):
                    total = self._total(at)

    def advance(self) -> bool:
        """Leave out one more turn or step; return False if only the last ones are left."""
        opened = self._users[-1] if self._users else 0
        return self._drop(max(opened, self._start), len(self._steps) - 1)

    def first_turns(self, limit: int) -> tuple[int, int]:
        """Return the first message of the first turn that a cut of whole turns would leave, and the
        tokens of those before it: as many as have at most `limit` tokens with what is fixed."""
        start = self._start
        while start and self._fixed + self._sums[start] > limit:
            before = bisect_left(self._users, start) - 1
            start = self._users[before] if before >= 0 else 0
        return (self._steps[start].messages[0], self._sums[start]) if start else (0, 0)

    @property
    def cut(self) -> TurnCut:
        """The cut so far."""
        if not self._steps:
            return WHOLE
        first = self._steps[self._start].messages[0]
        if self._resume <= self._start + 1:
            return TurnCut(first, first) if self._start else WHOLE
        return TurnCut(first, self._steps[self._resume].messages[0])

    @property
    def left_out(self) -> tuple[set[int], int]:
        """The indexes of messages that are left out, and their tokens."""
        steps = [at for at in range(len(self._steps)) if not self._kept(at)]
        messages = {index for at in steps for index in self._steps[at].messages}
        return messages, sum(self._tokens[at] for at in steps)

    @property
    def total(self) -> int:
        """The tokens that are not left out."""
        return self._total(len(self._steps) - 1)

    def _kept(self, at: int) -> bool:
        return at == self._start or at >= self._resume

    def _total(self, last: int) -> int:
        if not self._steps:
            return self._fixed
        later = self._sums[last + 1] - self._sums[min(self._resume, last + 1)]
        return self._fixed + self._tokens[self._start] + later

    def _drop(self, opened: int, last: int) -> bool:
        """Leave out the oldest turn before step `opened`, which begins the last turn, or else the
        oldest step of that turn, if it is before step `last`."""
        later = bisect_right(self._users, self._start)
        if later < len(self._users) and self._users[later] <= opened:
            self._start = self._users[later]
            self._resume = self._start + 1
            return True
        if self._resume < last:
            self._resume += 1
            return True
        return False

    def _index(self, message: int) -> int:
        """Return the step that begins at a message, or the first one after it."""
        found = bisect_left(self._steps, message, key=lambda step: step.messages[0])
        return min(found, max(0, len(self._steps) - 1))
