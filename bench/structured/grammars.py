"""Sixty grammars that are too deep, too large or too ambiguous."""

import json
from typing import Any

_N = 10**6


def _nested(levels: int, *, objects: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        if objects:
            schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        else:
            schema = {"type": "array", "items": schema}
    return schema


def _doubling(levels: int, keyword: str) -> dict[str, Any]:
    """Return a schema in which each definition refers to the next one twice."""
    defs: dict[str, Any] = {f"d{levels}": {"type": "integer"}}
    for level in range(levels):
        to = {"$ref": f"#/$defs/d{level + 1}"}
        both = (
            {"properties": {"a": to, "b": to}} if keyword == "properties" else {keyword: [to, to]}
        )
        defs[f"d{level}"] = both
    return {"$defs": defs, "$ref": "#/$defs/d0"}


_STRINGS = {f"p{i}": {"type": "string"} for i in range(2000)}
_SCHEMAS: list[Any] = [
    _nested(50),
    _nested(200),
    _nested(40, objects=True),
    _nested(150, objects=True),
    {"enum": [f"value-{i}" for i in range(15_000)]},
    {"enum": [f"value-{i}" for i in range(20_000)]},
    {"enum": list(range(20_000))},
    {"$ref": "#"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"},
    {"type": "string", "maxLength": _N},
    {"type": "string", "minLength": _N},
    {"type": "string", "pattern": "^(a{1,1000}){1,1000}$"},
    {"type": "string", "pattern": "^(a+)+$"},
    {"type": "array", "maxItems": _N, "items": {"type": "integer"}},
    {"type": "array", "minItems": 10_000, "items": {"type": "integer"}},
    {"type": "array", "items": _nested(3), "maxItems": 16_000},
    {"type": "object", "properties": _STRINGS},
    {"type": "object", "properties": _STRINGS, "required": list(_STRINGS)},
    {"type": "object", "properties": dict(list(_STRINGS.items())[:400])},
    {"anyOf": [{"type": "object", "properties": {f"k{i}": {}}} for i in range(500)]},
    {"anyOf": [{"type": "string", "pattern": f"^a{{{i},}}b"} for i in range(1, 200)]},
    {"allOf": [{"type": "string", "pattern": f"a{{{i}}}"} for i in range(1, 30)]},
    {"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(4)]} for i in range(12)]},
    {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    {"type": "integer", "multipleOf": 999_999_937},
    {"type": "number", "multipleOf": 1e-300},
    {"type": "object", "minProperties": 3, "maxProperties": 100_000},
    {"type": "array", "prefixItems": [{"enum": ["a", "b"]}] * 2000},
    _doubling(25, "anyOf"),
    _doubling(25, "allOf"),
    _doubling(25, "properties"),
    {"oneOf": [{"const": i} for i in range(2000)]},
    {"oneOf": [{"type": "object", "properties": {f"k{i}": {"const": i}}} for i in range(300)]},
    {"patternProperties": {f"^k{i}": {"type": "string"} for i in range(100)}},
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"minLength": 3}},
    {"type": "array", "uniqueItems": True},
]
_REGEXES = [
    "(a{1,1000}){1,1000}",
    "a{1000000}",
    "a{10000}",
    "(?=a)b",
    "(?<!a)b",
    r"(a)\1",
    "((a{1,100}){1,100}){1,100}",
    "(a?){500}a{500}",
    "[ab]*a[ab]{200}",
    ".*a.{30}",
    r"\p{L}{1,2000}",
    ".{0,10000}",
    "(?:[^\\x00-\\x7f]{1,300}){1,300}",
    "|".join(f"w{i}" for i in range(20_000)),
    "a" * 10_000_000,
]
_LARK = [
    "start: a0\n"
    + "\n".join(f'a{i}: "x" a{i + 1} | a{i + 1} "y"' for i in range(300))
    + '\na300: "z"',
    'start: s\ns: s s | "a" | ',
    "start: /a{1,1000}/{1,1000}",
    "start: " + " | ".join(f'"w{i}"' for i in range(10_000)),
    "start: " + "(" * 2000 + '"a"' + ")" * 2000,
    "start: x\nx: y\ny: x",
    "start: A\nA: " + " & ".join(f"/.*a{{{i}}}.*/" for i in range(1, 30)),
]

HOSTILE: list[tuple[str, str]] = [
    *(("json_schema", json.dumps(schema)) for schema in _SCHEMAS),
    *(("regex", text) for text in _REGEXES),
    *(("lark", text) for text in _LARK),
]
"""Kind and text of each grammar."""
