"""Lark grammars for a text as it stands in a JSON string.

Terminals are translated, and rules become terminals, so that a grammar without recursion is one
regular expression. Between terminals the lexer cannot look ahead: it takes a backslash as more of
the last terminal if an escape may follow there, though the escape may be the next one's.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

from services.frontend.output.custom.json_regex import escaped_literal, json_regex

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""
      (?P<comment>(?://|\#)[^\n]*)
    | (?P<range>{_STRING}\s*\.\.\s*{_STRING})
    | (?P<string>{_STRING})(?P<case>i?)
    | /(?P<regex>(?:[^/\\]|\\.)+)/(?P<flags>[a-z]*)
    | (?P<imported>%import\s+common\s*\.\s*(?P<name>\w+)(?:\s*->\s*(?P<alias>\w+))?)
    | (?P<alternative>->\s*[\w-]+)
    | (?:(?:(?<=\n)|\A)[ \t]*[?!]*(?P<defined>[A-Za-z_][\w-]*)\s*:(?!:))
    | (?P<used>[A-Za-z_][\w-]*)
    | (?P<count>~\s*\d+)
    | (?P<syntax>[ \t\r\n]+|[|()\[\]*+?]|\{{\d*,?\d*\}}|\d+|\.\.)
    | (?P<other>%\w+|<[^<>\n]*>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_START = "start"
_BACKSLASH = r"\\"
"""One, in a regular expression: how an escape begins."""
_FIXED = re.compile(r"\(\?-i:|\\.", re.DOTALL)
_REPEATS = re.compile(r"[\[*+?{|]")
_COMMON = {
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[a-fA-F0-9]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": r"[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "NUMBER": r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "LETTER": r"[A-Za-z]",
    "WORD": r"[A-Za-z]+",
    "CNAME": r"[_A-Za-z][_A-Za-z0-9]*",
}
"""Terminals of Lark's grammar `common`, as regular expressions."""
_Part = tuple[str, str]
"""Text of the translated grammar and nothing, or nothing and a name that is used."""


def json_lark(grammar: str, prefix: str) -> tuple[str, list[str]]:
    """Return the rules for the escaped texts of those that a grammar has, and which is the first.

    Args:
        grammar: that compiles.
        prefix: of the rules' names.

    Raises:
        ValueError: it has what cannot be translated; the text says what.
    """
    defined = _definitions(grammar)
    order, recursive = _reachable(defined)
    names = {
        name: f"{prefix.lower() if name in recursive else prefix.upper()}_{at}"
        for at, name in enumerate(order)
    }
    rules = [
        f"{names[name]}: " + "".join(text or names[used] for text, used in defined[name])
        for name in order
    ]
    _check_lookahead(defined, recursive)
    return names[_START], rules


def _definitions(grammar: str) -> dict[str, list[_Part]]:
    defined: dict[str, list[_Part]] = {}
    parts: list[_Part] = []
    for found in _TOKEN.finditer(grammar):
        match found.lastgroup:
            case "comment" | "alternative":
                continue
            case "imported":
                name = found["name"]
                if name not in _COMMON:
                    raise ValueError(f"%import common.{name[:32]} is not supported: define it")
                defined[found["alias"] or name] = [(_terminal(_COMMON[name]), "")]
            case "defined":
                parts = defined.setdefault(found["defined"], [])
            case "used":
                parts.append(("", found["used"]))
            case "count" | "syntax":
                parts.append((" " if found[0].isspace() else found[0], ""))
            case "other":
                raise ValueError(f"{found[0][:32]} is not supported in the input of a tool")
            case _:
                parts.append((_translated(found), ""))
    return defined


def _translated(found: re.Match[str]) -> str:
    """Return a string, range or regular expression."""
    if found["range"]:
        low, high = (_value(one) for one in re.findall(_STRING, found[0]))
        if len(low) != 1 or len(high) != 1:
            raise ValueError(f"{found[0][:32]} must be a range of two characters")
        return _terminal(f"[\\x{{{ord(low):x}}}-\\x{{{ord(high):x}}}]")
    if found["string"]:
        text = escaped_literal(_value(found["string"]))
        if not text:
            return '""'
        return f"/(?i:{text})/" if found["case"] else f"/{text}/"
    flags = found["flags"]
    if not set(flags) <= {"i", "s"}:
        raise ValueError(f"of the flags {flags!r}, only i and s are supported")
    text = json_regex(found["regex"], dot_all="s" in flags)
    return f"/(?i:{text})/" if "i" in flags else f"/{text}/"


def _terminal(pattern: str) -> str:
    return f"/{json_regex(pattern)}/"


def _value(string: str) -> str:
    """Return the text of a string in Lark."""
    try:
        return msgspec.json.decode(string, type=str)
    except msgspec.MsgspecError:
        raise ValueError(f"{string[:32]} must be written as a string of JSON") from None


def _check_lookahead(defined: Mapping[str, list[_Part]], recursive: set[str]) -> None:
    """Refuse a grammar in which a terminal may go on with one escape, and another have the next."""
    terminals: set[str] = set()
    for name in recursive:
        for text, used in defined[name]:
            if used not in recursive:
                within = {used, *_all_uses(defined, used)} if used else set()
                terminals.add(text + "".join(one for each in within for one, _ in defined[each]))
    escaping = [text for text in terminals if _BACKSLASH in text]
    if len(escaping) > 1 and any(_REPEATS.search(_FIXED.sub("", text)) for text in escaping):
        raise ValueError(
            "rules that refer to themselves, with several terminals of characters that JSON "
            "escapes, cannot be enforced within JSON: take newlines, quotation marks and "
            "backslashes out of all terminals but one"
        )


def _reachable(defined: Mapping[str, list[_Part]]) -> tuple[list[str], set[str]]:
    """Return the names that are used, in order of their first use, and those that are no terminals:
    they use themselves, or one that does."""
    order, waiting = [_START], [_START]
    for name in waiting:
        for used in _uses(defined, name):
            if used not in order:
                order.append(used)
                waiting.append(used)
    uses = {name: _all_uses(defined, name) for name in order}
    recursive = {name for name in order if name in uses[name]}
    return order, recursive | {name for name in order if uses[name] & recursive}


def _all_uses(defined: Mapping[str, list[_Part]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        more = set(_uses(defined, waiting.pop())) - found
        found |= more
        waiting += more
    return found


def _uses(defined: Mapping[str, list[_Part]], name: str) -> Iterator[str]:
    if name not in defined:
        raise ValueError(f"{name[:32]} is not defined")
    return (used for _, used in defined[name] if used)
