"""Regular expressions for a text as it stands in a JSON string.

A character that JSON escapes is replaced by its escape; a set of characters, by those of the set
that JSON does not escape, or the escapes of the others.
"""

import json
import re
from typing import NamedTuple

_ESCAPED = {one: json.dumps(chr(one))[1:-1] for one in (*range(32), ord('"'), ord("\\"))}
"""By its number: a character that must be escaped, as escaped."""
_SPECIAL = r"[\"\\\x00-\x1f]"
"""What JSON escapes."""
_NEWLINE, _ANY = r"[^\n]", r"[\s\S]"
_META = frozenset(r"\.+*?()|[]{}^$#&-~/")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|[xu]\{([0-9a-fA-F]{1,6})\})")
_CLASS = re.compile(r"\\[dDwWsS]")
_FLAGS = re.compile(r"\(\?([is]*)(?:-([is]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<[A-Za-z_]\w*>")
_COUNT = re.compile(r"\{\d+(?:,\d*)?\}|[*+?]")
_SET = re.compile(r"\[\^?\]?(?:[^\]\[\\]|\\.)*\]", re.DOTALL)
_OPERATORS = ("&&", "--", "~~")


class _Group(NamedTuple):
    dot_all: bool
    """Whether a dot matches newlines after the group."""


def json_regex(pattern: str, *, dot_all: bool = False) -> str:
    """Return a regular expression that matches the escaped texts that `pattern` matches.

    Args:
        pattern: in the syntax of Rust's crate `regex`.
        dot_all: whether a dot matches newlines.

    Raises:
        ValueError: it uses what cannot be translated; the text says what.
    """
    return _Translation(pattern, dot_all=dot_all).run()


def escaped_literal(text: str) -> str:
    """Return a regular expression for a text, escaped."""
    return "".join(_character(character) for character in text)


def unanchored(pattern: str) -> str:
    """Return an expression, which must match all of a text, without the anchors around it."""
    pattern = re.sub(r"^(?:\^|\\A)", "", pattern)
    return re.sub(r"(?<!\\)((?:\\\\)*)(?:\$|\\z)$", r"\1", pattern)


class _Translation:
    def __init__(self, pattern: str, *, dot_all: bool) -> None:
        self._pattern = pattern
        self._at = 0
        self._dot_all = dot_all
        self._groups: list[_Group] = []
        self._out: list[str] = []

    def run(self) -> str:
        while self._at < len(self._pattern):
            self._out.append(self._next())
        return "".join(self._out)

    def _next(self) -> str:
        character = self._pattern[self._at]
        match character:
            case "(":
                return self._group()
            case ")":
                if not self._groups:
                    raise ValueError("a parenthesis is closed that was not opened")
                self._dot_all = self._groups.pop().dot_all
                return self._take(1)
            case "[":
                return self._set()
            case ".":
                self._at += 1
                return _of_set(_ANY if self._dot_all else _NEWLINE)
            case "\\":
                return self._escape()
            case "^" | "$":
                raise ValueError(f"{character} is not supported")
            case "|":
                return self._take(1)
        if count := _COUNT.match(self._pattern, self._at):
            return self._take(len(count[0]))
        self._at += 1
        return _character(character)

    def _take(self, length: int) -> str:
        begin, self._at = self._at, self._at + length
        return self._pattern[begin : self._at]

    def _group(self) -> str:
        if not self._pattern.startswith("(?", self._at):
            self._groups.append(_Group(self._dot_all))
            self._at += 1
            return "(?:"
        if named := _NAMED.match(self._pattern, self._at):
            self._groups.append(_Group(self._dot_all))
            self._at = named.end()
            return "(?:"
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is None:
            raise ValueError(f"{self._pattern[self._at : self._at + 4]!r} is not supported")
        on, off, end = flags[1], flags[2] or "", flags[3]
        if end == ":":
            self._groups.append(_Group(self._dot_all))
        if "s" in on + off:
            self._dot_all = "s" in on
        return self._take(len(flags[0]))

    def _set(self) -> str:
        found = _SET.match(self._pattern, self._at)
        if found is None or any(operator in found[0] for operator in _OPERATORS):
            raise ValueError("sets within sets of characters are not supported")
        return _of_set(self._take(len(found[0])))

    def _escape(self) -> str:
        if number := _HEX.match(self._pattern, self._at):
            self._at = number.end()
            code = int(next(filter(None, number.groups())), 16)
            if code > 0x10FFFF:
                raise ValueError(f"{number[0]} is no character")
            return _character(chr(code))
        if _CLASS.match(self._pattern, self._at):
            return _of_set(f"[{self._take(2)}]")
        escaped = self._take(2)[1:]
        if escaped in _CONTROLS:
            return _character(_CONTROLS[escaped])
        if not escaped or escaped.isalnum():
            raise ValueError(f"\\{escaped} is not supported")
        return _character(escaped)


def _character(character: str) -> str:
    if ord(character) in _ESCAPED:
        return f"(?-i:{_quoted(_ESCAPED[ord(character)])})"
    return _quoted(character)


def _quoted(text: str) -> str:
    return "".join(f"\\{one}" if one in _META else one for one in text)


def _of_set(characters: str) -> str:
    """Return an expression for one character of a set, escaped if need be."""
    within = re.compile(_python(characters))
    escaped = [code for code in _ESCAPED if within.fullmatch(chr(code))]
    if not escaped:
        return _slashed(characters)
    plain = f"[{_slashed(characters)}--{_SPECIAL}]"
    short = "".join(_quoted(_ESCAPED[code][1]) for code in escaped if len(_ESCAPED[code]) == 2)
    alternatives = [f"[{short}]"] if short else []
    for high in "01":
        low = [_ESCAPED[code][-1] for code in escaped if _ESCAPED[code].startswith(f"\\u00{high}")]
        alternatives += [f"u00{high}[{''.join(low)}]"] if low else []
    return f"(?:{plain}|(?-i:\\\\(?:{'|'.join(alternatives)})))"


def _python(characters: str) -> str:
    """Return a set in the syntax of Python."""
    if re.search(r"\\[pP]", characters):
        raise ValueError("\\p is not supported in the input of a tool")
    return re.sub(
        r"\\[xu]\{([0-9a-fA-F]{1,6})\}", lambda one: f"\\U{int(one[1], 16):08x}", characters
    )


def _slashed(characters: str) -> str:
    """Return a set whose slashes do not end an expression in Lark."""
    return re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", characters)
