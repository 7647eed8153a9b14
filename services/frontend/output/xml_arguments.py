"""Converts arguments that a model writes as XML to JSON, as they arrive.

A parameter's value is text between tags; the tool's schema determines its type. If it allows only
strings, the text is one, emitted as it arrives. Otherwise the value is converted when it is
complete: JSON of a type that the schema allows stays unchanged, Python's `True`, `False` and `None`
become JSON's, and everything else is a string.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from services.frontend.output.lexer import SPACE, Lexer

TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_STRING = frozenset({"string"})
_PYTHON = {"True": ("boolean", "true"), "False": ("boolean", "false"), "None": ("null", "null")}
_MOST_REFERENCES = 16
_KINDS: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    dict: ("object",),
    list: ("array",),
    type(None): ("null",),
}


def types_of(schema: Mapping[str, Any] | None, name: str) -> frozenset[str]:
    """Return the JSON types that a schema allows for a parameter; all if it does not say."""
    properties = (schema or {}).get("properties")
    of = properties.get(name) if isinstance(properties, Mapping) else None
    return frozenset(_types(schema or {}, of, _MOST_REFERENCES)) or TYPES


def to_json(text: str, types: frozenset[str]) -> str:
    """Return a parameter's value as JSON, of one of the given types if possible."""
    bare = text.strip(SPACE)
    kind, literal = _PYTHON.get(bare, ("", ""))
    if kind in types:
        return literal
    try:
        value = msgspec.json.decode(bare)
    except (msgspec.MsgspecError, UnicodeError):
        value = text
    if not isinstance(value, str) and not types.isdisjoint(_KINDS[type(value)]):
        return bare
    return json.dumps(text, ensure_ascii=False)


def _types(root: Mapping[str, Any], schema: Any, most: int) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and most:
        yield from _types(root, _find(root, reference), most - 1)
    for branch in ("anyOf", "oneOf", "allOf"):
        inner = schema.get(branch)
        for one in inner if isinstance(inner, list) else ():
            if most:
                yield from _types(root, one, most - 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from (one for one in kind if isinstance(one, str))
    else:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else []
        for value in [*values, *([schema["const"]] if "const" in schema else [])]:
            yield from _KINDS.get(type(value), ())


def _find(root: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a reference within the schema; None: there is none."""
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key.replace("~1", "/").replace("~0", "~"))
    return found


@dataclass(slots=True)
class _ParameterProgress:
    given: int = 0
    """Number of parameters that have begun."""
    types: frozenset[str] | None = None
    """Types of the parameter being read."""
    at_start: bool = False
    """Whether nothing of its value was read yet."""
    seen: str = ""
    """The part of the value read so far, if it is not emitted immediately."""


@dataclass(frozen=True, slots=True)
class XmlArguments:
    """The parameters of a call that has begun, up to where it ends.

    Args:
        parameter: begins a parameter; its name follows, and `>`.
        end: ends its value. One line end after the name and one before this are not part of it.
        close: ends the call.
        then: the state after it.
    """

    parameter: str
    end: str
    close: str
    then: str

    def run(self, lexer: Lexer) -> bool:
        if lexer.memory is None:
            lexer.memory = _ParameterProgress()
        here: _ParameterProgress = lexer.memory
        return self._between(lexer, here) if here.types is None else self._value(lexer, here)

    def bound(self, bind: Callable[[str], str]) -> "XmlArguments":
        return replace(
            self, parameter=bind(self.parameter), end=bind(self.end), close=bind(self.close)
        )

    def _between(self, lexer: Lexer, here: _ParameterProgress) -> bool:
        rest = lexer.buffer[lexer.at :]
        bare = rest.lstrip(SPACE)
        if bare.startswith(self.parameter):
            name, end, value = bare[len(self.parameter) :].partition(">")
            if not end:
                return False
            name = name.strip(SPACE)
            before = ", " if here.given else "{"
            lexer.arguments(f"{before}{json.dumps(name, ensure_ascii=False)}: ")
            here.given += 1
            here.types = types_of(lexer.schema, name)
            here.at_start, here.seen = True, ""
            if here.types == _STRING:
                lexer.arguments('"')
            lexer.at = len(lexer.buffer) - len(value)
            return True
        if bare.startswith(self.close):
            lexer.at = len(lexer.buffer) - len(bare) + len(self.close)
        elif not bare or (not lexer.final and self._may_go_on(bare)):
            return False
        lexer.arguments("}" if here.given else "{}")
        lexer.end_call()
        return lexer.go(self.then)

    def _value(self, lexer: Lexer, here: _ParameterProgress) -> bool:
        buffer, at = lexer.buffer, lexer.at
        if here.at_start:
            if at == len(buffer):
                return False
            here.at_start = False
            if buffer[at] == "\n":
                at = lexer.at = at + 1
        end = buffer.find(self.end, at)
        certain = end if end >= 0 else self._certain(buffer, at)
        value = buffer[at:certain]
        if end >= 0:
            value = value.removesuffix("\n")
        if here.types == _STRING:
            lexer.arguments(json.dumps(value, ensure_ascii=False)[1:-1])
        else:
            here.seen += value
        if end < 0:
            lexer.at = certain
            return False
        types = here.types or TYPES
        lexer.arguments('"' if types == _STRING else to_json(here.seen, types))
        here.types = None
        lexer.at = end + len(self.end)
        return True

    def _may_go_on(self, begun: str) -> bool:
        return self.parameter.startswith(begun) or self.close.startswith(begun)

    def _certain(self, buffer: str, at: int) -> int:
        """Return the end of the text that belongs to the value in any case."""
        start = max(at, len(buffer) - len(self.end) + 1)
        while (start := buffer.find(self.end[0], start)) >= 0:
            if self.end.startswith(buffer[start:]):
                break
            start += 1
        certain = start if start >= 0 else len(buffer)
        return certain - 1 if certain > at and buffer[certain - 1] == "\n" else certain
