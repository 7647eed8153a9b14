"""The outputs of an answer, put together from an upstream's pieces. Pure."""

from collections.abc import Sequence

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    FinishReason,
    Part,
    Reasoning,
    Text,
)
from services.frontend.workers.events import ProviderOutput

MAX_CALLS = 128
_CUT = (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)
"""Reasons that may leave a call unfinished."""


class BadAnswerError(Exception):
    """The upstream's stream is not one of its API."""


class CallInProgress:
    def __init__(self, key: int | str, identifier: str, name: str) -> None:
        self.key = key
        """What the upstream recognizes it by."""
        self.id = identifier
        self.name = name
        self.index = -1
        """Its index for the client, once it has begun."""


class ChoiceAnswer:
    """One choice: its text, and its calls, whose names and arguments may come in any pieces.

    Args:
        choice: its index.
        request_id: of which ids of calls are made if the upstream sends none.
    """

    def __init__(self, choice: int, request_id: str) -> None:
        self.choice = choice
        self.reason: FinishReason | None = None
        self._request_id = request_id
        self._calls: list[CallInProgress] = []
        self._parts: list[Part] = []
        self._bytes = 0
        self._ended = False
        """Whether its end was taken."""

    def say(self, text: str | None, *, reasoning: bool = False) -> None:
        """Add text."""
        if text:
            self._parts.append(Reasoning(text) if reasoning else Text(text))
            self._bytes += len(text)

    def call(self, key: int | str | None, identifier: str, name: str, arguments: str) -> None:
        """Add a piece of a call.

        Args:
            key: recognizes the call among those of the choice; None: a piece with another id than
                the latest call's begins one, and any other continues it.
            identifier: the call's id; empty: not in this piece.
            name: more of its name; empty: not in this piece.
            arguments: more of its arguments.

        Raises:
            BadAnswerError: there are too many calls.
        """
        call = self._find(key, identifier)
        call.id = call.id or identifier
        if call.index < 0 and name and name != call.name:
            call.name += name
        if arguments:
            self._begin(call)
            self._parts.append(CallArguments(call.index, arguments))
            self._bytes += len(arguments)

    def finish(self, reason: FinishReason) -> None:
        """End the choice."""
        self.reason = reason
        if self._calls:
            self._begin(self._calls[-1])
            if reason not in _CUT:
                self._parts += [CallEnded(call.index) for call in self._calls]

    def take(self) -> ProviderOutput | None:
        """Return what was added since the last time; None: nothing."""
        parts, self._parts = self._parts, []
        size, self._bytes = self._bytes, 0
        reason = None if self._ended else self.reason
        self._ended = self.reason is not None
        if not parts and reason is None:
            return None
        return ProviderOutput(self.choice, parts, size, reason)

    def _find(self, key: int | str | None, identifier: str) -> CallInProgress:
        last = self._calls[-1] if self._calls else None
        if last is not None:
            if key is None:
                if not identifier or identifier == last.id:
                    return last
            else:
                for call in self._calls:
                    if call.key == key:
                        return call
            self._begin(last)
        if len(self._calls) >= MAX_CALLS:
            raise BadAnswerError(f"it has more than {MAX_CALLS} tool calls")
        made = CallInProgress(len(self._calls) if key is None else key, "", "")
        self._calls.append(made)
        return made

    def _begin(self, call: CallInProgress) -> None:
        if call.index >= 0:
            return
        call.index = self._calls.index(call)
        identifier = call.id or f"call_{self._request_id}_{self.choice}_{call.index}"[:64]
        self._parts.append(CallBegun(call.index, identifier, call.name))
        self._bytes += len(call.name)


def taken(choices: Sequence[ChoiceAnswer]) -> list[ProviderOutput]:
    """Return what was added to any of the choices."""
    return [output for choice in choices if (output := choice.take()) is not None]
