"""Parses a model's output as it is generated: text, reasoning and tool calls.

A family's table defines the states; each state reads what it can of the available text. For any
split of an output into pieces, the joined parts equal those of the whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    Part,
    Reasoning,
    Text,
)

SPACE = " \t\r\n"
QUOTES = "`'\""
"""A tag directly after one of these is quoted: it is text."""
_FIRST_MARKER = 0xD800
"""First of the markers for special tokens: surrogates, which valid UTF-8 text cannot contain."""


class LexerState(Protocol):
    """One state of a table. Immutable: its memory is in `Lexer.memory`."""

    def run(self, lexer: "Lexer") -> bool:
        """Read on from `lexer.at`; return False if more text is needed."""
        ...

    def bound(self, bind: Callable[[str], str]) -> "LexerState":
        """Return the same state with its terminals bound to a vocabulary."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """The states of a family, and the markers of special tokens, for one vocabulary."""

    states: Mapping[str, LexerState]
    start: str
    markers: Mapping[int, str]
    """By token id: its marker in the lexer's text."""
    spelled: Mapping[str, str]
    """By marker: the token's text, used in arguments."""
    shown: Mapping[str, str]
    """By marker: the same, but empty for special tokens, used in the answer's text."""

    @classmethod
    def bind(
        cls,
        states: Mapping[str, LexerState],
        start: str,
        tags: Mapping[str, int],
        is_special: Callable[[int], bool] = bool,
    ) -> "Table":
        """Make the table for a vocabulary.

        Args:
            states: of a family, with terminals as text.
            start: the name of the first state.
            tags: tokens by their text; other terminals are plain text.
            is_special: whether a token is special, and has no text.
        """
        markers: dict[int, str] = {}
        spelled: dict[str, str] = {}
        shown: dict[str, str] = {}

        def bound(terminal: str) -> str:
            token = tags.get(terminal)
            if token is None:
                return terminal
            marker = markers.setdefault(token, chr(_FIRST_MARKER + len(markers)))
            spelled[marker] = terminal
            shown[marker] = "" if is_special(token) else terminal
            return marker

        made = {name: state.bound(bound) for name, state in states.items()}
        return cls(made, start, markers, spelled, shown)


class Lexer:
    """Parses one output.

    Args:
        table: of the model's family.
        start: the first state, if it is not the table's.
        schemas: of the arguments of the tools that can be called, by name; a call of another tool
            is text.
        make_id: returns the id of a call, by its index.
    """

    def __init__(
        self,
        table: Table,
        schemas: Mapping[str, Mapping[str, Any] | None],
        make_id: Callable[[int], str],
        start: str = "",
    ) -> None:
        self.buffer = ""
        """Text not parsed yet, from `at` on, and before it what may turn out to be text."""
        self.at = 0
        self.final = False
        """Whether the text is complete."""
        self.memory: Any = None
        """Memory of the state; None when it is entered."""
        self.calls = 0
        """Number of calls that have begun."""
        self.in_call = False
        self.last = ""
        """The last emitted text: shows whether a quotation mark precedes a tag."""
        self.markers = table.markers
        self._table = table
        self.schema: Mapping[str, Any] | None = None
        """Schema of the call that has begun."""
        self._schemas = schemas
        self._make_id = make_id
        self._parts: list[Part] = []
        self._state: LexerState
        self._first: str | None
        self._mark: tuple[int, int, str] | None = None
        """Start of the text that may be a call, end of its tag, and the state that follows if it is
        not one."""
        self.go(start or table.start)

    def push(self, text: str) -> None:
        """Parse more text, without markers."""
        first = self._first
        if (
            first is not None
            and not self.buffer
            and text
            and first not in text
            and text[-1] not in SPACE
        ):
            self.last = text
            self._parts.append(Text(text))
            return
        if text:
            self.buffer += text
            self._run()

    def push_marker(self, marker: str) -> None:
        """Parse a special token, given by its marker."""
        self.buffer += marker
        self._run()

    def end(self, *, cut: bool) -> None:
        """Parse what is held back: the text is complete.

        Args:
            cut: whether it was cut off; a tag, and what may have become its call, is then dropped.
        """
        self.final = True
        if self._mark is not None and cut and not self.buffer[: self._mark[1]].endswith("{"):
            self.buffer, self.at, self._mark = "", 0, None
            return
        self._run()
        while self._mark is not None:
            self.reject()
            self._run()

    def take(self) -> list[Part]:
        """Return the parts since the last call, in order; adjacent ones of one kind are joined."""
        parts, self._parts = self._parts, []
        return parts if len(parts) < 2 else _joined(parts)

    # For states.

    def go(self, name: str, at: int | None = None) -> bool:
        """Enter a state, at a position of the buffer; returns True, as states do."""
        self._state = self._table.states[name]
        self.memory = None
        if at is not None:
            self.at = at
        self._first = getattr(self._state, "first", None)
        return True

    def mark(self, start: int, end: int, otherwise: str) -> None:
        """Hold back the text from here on, which may be text or a call.

        Args:
            start: where the text begins.
            end: where its tag ends.
            otherwise: the state that follows if it is text.
        """
        if self._mark is None:
            self._mark = (start, end, otherwise)

    def reject(self) -> bool:
        """End what is not a call: the marked tag is text, and what follows it is parsed again."""
        if self._mark is None:  # the call has begun already, and can only be ended
            if self.in_call:
                self.end_call()
            return self.go("after")
        start, end, otherwise = self._mark
        self._mark = None
        self.text(self.buffer[start:end])
        return self.go(otherwise, end)

    def text(self, text: str) -> None:
        """Emit text of the answer."""
        for marker, shown in self._table.shown.items():
            text = text.replace(marker, shown)
        if text:
            self.last = text
            self._parts.append(Text(text))

    def reasoning(self, text: str) -> None:
        """Emit text of the reasoning."""
        for marker, shown in self._table.shown.items():
            text = text.replace(marker, shown)
        if text:
            self._parts.append(Reasoning(text))

    def nothing(self, text: str) -> None:
        """Drop text."""

    def begin_call(self, name: str) -> bool:
        """Begin a call; return False if there is no such tool."""
        if name not in self._schemas:
            return False
        self._mark = None
        self.schema = self._schemas[name]
        self.in_call = True
        self.last = ""
        self._parts.append(CallBegun(self.calls, self._make_id(self.calls), name))
        self.calls += 1
        return True

    def arguments(self, text: str) -> None:
        """Emit more arguments of the call that has begun."""
        for marker, spelling in self._table.spelled.items():
            text = text.replace(marker, spelling)
        if text:
            self._parts.append(CallArguments(self.calls - 1, text))

    def end_call(self) -> None:
        """End the call that has begun."""
        self.in_call = False
        self._parts.append(CallEnded(self.calls - 1))

    def _run(self) -> None:
        while self._state.run(self):
            pass
        kept = self.at if self._mark is None else self._mark[0]
        if kept:
            self.buffer = self.buffer[kept:]
            self.at -= kept
            if self._mark is not None:
                start, end, otherwise = self._mark
                self._mark = (start - kept, end - kept, otherwise)


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if type(part) is Text and type(last) is Text:
            joined[-1] = Text(last.text + part.text)
        elif type(part) is Reasoning and type(last) is Reasoning:
            joined[-1] = Reasoning(last.text + part.text)
        elif type(part) is CallArguments and type(last) is CallArguments:
            joined[-1] = CallArguments(part.index, last.text + part.text)
        else:
            joined.append(part)
    return joined
