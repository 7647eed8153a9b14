"""The kinds of states that families' tables consist of."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from services.frontend.output.json_value import JsonValueScanner
from services.frontend.output.lexer import QUOTES, SPACE, Lexer

Bind = Callable[[str], str]


def _bound(exits: Mapping[str, str], bind: Bind) -> dict[str, str]:
    return {bind(terminal): name for terminal, name in exits.items()}


@dataclass(frozen=True, slots=True)
class Words:
    """Text, reasoning or dropped text, up to a terminal. Space before that is not part of it.

    Args:
        kind: names the lexer's method that emits it.
        exits: the state after each terminal.
        tags: whether the terminals begin what may be a call, and are text if none follows.
    """

    kind: Literal["text", "reasoning", "nothing"]
    exits: Mapping[str, str]
    tags: bool = False
    first: str | None = None
    """A text without this character contains no terminal; None: there is no such character."""
    longest: int = 0

    def run(self, lexer: Lexer) -> bool:
        buffer, at = lexer.buffer, lexer.at
        found = self._find(lexer)
        give = getattr(lexer, self.kind)
        if found is not None:
            start, terminal = found
            words = buffer[at:start].rstrip(SPACE)
            give(words)
            end = start + len(terminal)
            if self.tags:
                lexer.mark(at + len(words), end, "text")
            return lexer.go(self.exits[terminal], end)
        certain = len(buffer)
        if not lexer.final:
            certain = len(buffer[at : self._held(buffer, at)].rstrip(SPACE)) + at
        give(buffer[at:certain])
        lexer.at = certain
        return False

    def bound(self, bind: Bind) -> "Words":
        exits = _bound(self.exits, bind)
        # Markers come alone, so that text between them has no terminal unless it contains these.
        firsts = {terminal[0] for terminal in exits if terminal in self.exits}
        first = None
        if self.kind == "text" and len(firsts) < 2:
            first = firsts.pop() if firsts else "\udfff"  # no text has a surrogate
        return replace(self, exits=exits, first=first, longest=max(map(len, exits), default=0))

    def _find(self, lexer: Lexer) -> tuple[int, str] | None:
        buffer = lexer.buffer
        best: tuple[int, str] | None = None
        for terminal in self.exits:
            start = buffer.find(terminal, lexer.at)
            while self.tags and start >= 0 and len(terminal) > 1:
                before = buffer[start - 1] if start else lexer.last[-1:]
                if not before or before not in QUOTES:
                    break
                start = buffer.find(terminal, start + 1)
            if start >= 0 and (best is None or start < best[0]):
                best = (start, terminal)
        return best

    def _held(self, buffer: str, at: int) -> int:
        """Return the position from which on the text may be the beginning of a terminal."""
        start = max(at, len(buffer) - self.longest + 1)
        for terminal in self.exits:
            begun = start
            while (begun := buffer.find(terminal[0], begun)) >= 0:
                if terminal.startswith(buffer[begun:]):
                    return min(begun, len(buffer))
                begun += 1
        return len(buffer)


@dataclass(frozen=True, slots=True)
class Space:
    """Space, which is dropped."""

    then: str

    def run(self, lexer: Lexer) -> bool:
        buffer, at = lexer.buffer, lexer.at
        while at < len(buffer) and buffer[at] in SPACE:
            at += 1
        lexer.at = at
        return lexer.go(self.then) if at < len(buffer) else False

    def bound(self, bind: Bind) -> "Space":  # noqa: ARG002 - it has no terminals
        return self


@dataclass(frozen=True, slots=True)
class Expect:
    """Space and one of several terminals.

    Args:
        exits: the state after each terminal.
        otherwise: the state that parses the same text if there is none of them; None: there is no
            call, or no more of it.
        tags: whether the terminals begin what may be a call.
    """

    exits: Mapping[str, str]
    otherwise: str | None = None
    tags: bool = False

    def run(self, lexer: Lexer) -> bool:
        buffer, at = lexer.buffer, lexer.at
        start = at
        while start < len(buffer) and buffer[start] in SPACE:
            start += 1
        rest = buffer[start:]
        for terminal, name in self.exits.items():
            if rest.startswith(terminal):
                end = start + len(terminal)
                if self.tags:
                    lexer.mark(at, end, "text")
                return lexer.go(name, end)
        if not lexer.final and any(terminal.startswith(rest) for terminal in self.exits):
            return False
        if not rest and lexer.final:
            return False
        return lexer.reject() if self.otherwise is None else lexer.go(self.otherwise)

    def bound(self, bind: Bind) -> "Expect":
        return replace(self, exits=_bound(self.exits, bind))


@dataclass(frozen=True, slots=True)
class Name:
    """A tool's name, up to a terminal, which begins a call."""

    exits: Mapping[str, str]
    keep: str = ""
    """A terminal that the next state parses again."""

    def run(self, lexer: Lexer) -> bool:
        buffer, at = lexer.buffer, lexer.at
        ends = [(buffer.find(one, at), one) for one in self.exits]
        ends = [(end, one) for end, one in ends if end >= 0]
        if not ends:
            # A name contains no space, and must end.
            inside = buffer[at:].strip(SPACE)
            return lexer.reject() if len(inside) > 256 or len(inside.split()) > 1 else False
        end, terminal = min(ends)
        if not lexer.begin_call(buffer[at:end].strip(SPACE)):
            return lexer.reject()
        return lexer.go(self.exits[terminal], end if terminal == self.keep else end + len(terminal))

    def bound(self, bind: Bind) -> "Name":
        return replace(self, exits=_bound(self.exits, bind))


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """A JSON value: the arguments of the call that has begun, exactly as generated."""

    then: str

    def run(self, lexer: Lexer) -> bool:
        buffer, at = lexer.buffer, lexer.at
        if lexer.memory is None:
            while at < len(buffer) and buffer[at] in SPACE:
                at += 1
            lexer.at = at
            if at == len(buffer):
                return False
            lexer.memory = JsonValueScanner()
        end = lexer.memory.find_end(buffer, at)
        lexer.arguments(buffer[at:end])
        if end is None:
            lexer.at = len(buffer)
            return False
        lexer.end_call()
        return lexer.go(self.then, end)

    def bound(self, bind: Bind) -> "JsonArguments":  # noqa: ARG002 - it has no terminals
        return self


_KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*+")\s*:\s*(?=\S)', re.DOTALL)
_KEY_BEGUN = re.compile(r'[\s,]*(?:"(?:[^"\\]|\\.)*+(?:\\|"\s*(?::\s*)?)?)?', re.DOTALL)
_CLOSE = re.compile(r"[\s,]*\}")


@dataclass(slots=True)
class _Object:
    """The progress of a `JsonCall`."""

    key: str = ""
    """Key of the value being read."""
    scanner: JsonValueScanner | None = None
    seen: str = ""
    """The part of the value read so far, if it is not emitted immediately."""
    early: str = ""
    """Arguments that precede the name."""
    has_arguments: bool = False


@dataclass(frozen=True, slots=True)
class JsonCall:
    """The members of a JSON object that is a call, after its brace.

    Its name begins the call. Members other than name, arguments, type and id, before a name, show
    that it is not a call.

    Args:
        then: the state after it.
        arguments: key of the member with the arguments.
    """

    then: str
    arguments: tuple[str, ...] = ("arguments", "parameters")

    def run(self, lexer: Lexer) -> bool:
        if lexer.memory is None:
            lexer.memory = _Object()
        here: _Object = lexer.memory
        if here.scanner is not None:
            return self._value(lexer, here, here.scanner)
        buffer, at = lexer.buffer, lexer.at
        close = _CLOSE.match(buffer, at)
        if close is not None:
            if not lexer.in_call:
                return lexer.reject()
            if not here.has_arguments:
                lexer.arguments("{}")
            lexer.end_call()
            return lexer.go(self.then, close.end())
        found = _KEY.match(buffer, at)
        if found is None:
            begun = _KEY_BEGUN.fullmatch(buffer, at) is not None
            return False if begun else lexer.reject()
        here.key = _string(found[1])
        if not lexer.in_call and here.key not in ("name", "type", "id", *self.arguments):
            return lexer.reject()
        here.scanner, here.seen = JsonValueScanner(), ""
        lexer.at = found.end()
        return True

    def bound(self, bind: Bind) -> "JsonCall":  # noqa: ARG002 - it has no terminals
        return self

    def _value(self, lexer: Lexer, here: _Object, scanner: JsonValueScanner) -> bool:
        buffer, at = lexer.buffer, lexer.at
        end = scanner.find_end(buffer, at)
        read = buffer[at:end]
        lexer.at = len(buffer) if end is None else end
        is_arguments = here.key in self.arguments and not here.has_arguments
        if is_arguments and lexer.in_call:
            lexer.arguments(read)
        else:
            here.seen += read
        if end is None:
            return False
        here.scanner = None
        if is_arguments:
            here.has_arguments = True
            here.early = here.seen
        elif here.key == "name" and not lexer.in_call:
            if not lexer.begin_call(_string(here.seen)):
                return lexer.reject()
            lexer.arguments(here.early)
        return True


def _string(text: str) -> str:
    """Return the text of a JSON string; empty if it is not one."""
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
