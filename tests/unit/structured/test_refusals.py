"""What a grammar may not ask for: refused by keyword and path, and within a bound of time."""

import json
import time
from typing import Any

import pytest

from baton.request.grammar import Grammar
from baton.structured.compile import compile_grammar
from baton.structured.errors import GrammarError
from baton.structured.vocabulary import Vocabulary
from tests.support.clock import slowness

MAX_SECONDS = 0.25


def refusal(vocabulary: Vocabulary, kind: str, text: str) -> str:
    with pytest.raises(GrammarError) as caught:
        compile_grammar(vocabulary, Grammar.of(kind, text))
    return str(caught.value)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


DOUBLING = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    | {"d40": {"type": "integer"}},
}
"""Each definition names the next one twice."""
OBJECT = {"type": "object", "required": ["k"]}
PATTERNS = {"allOf": [{"type": "string", "pattern": f"a{{{i}}}"} for i in range(1, 30)]}
OPTIONAL = {"anyOf": [{"type": "object", "properties": {f"k{i}": {}}} for i in range(500)]}
"""Its first brace may be that of any branch, and any of their properties may come next."""
REFUSED_SCHEMAS: list[tuple[Any, str]] = [
    ({"not": {}}, "$: the keyword not is not supported"),
    ({"if": {}, "then": {}}, "$: the keyword if"),
    ({"const": -(2**63)}, "$.const: the number -2^63"),
    ({"properties": {"a": {"enum": [1, {"b": [1 - 2**63]}]}}}, "$.properties.a.enum: the number"),
    (
        {"properties": {"a b": {"uniqueItems": True}}},
        '$.properties["a b"]: the keyword uniqueItems',
    ),
    ({"anyOf": [{}], "unevaluatedProperties": False}, "$: the keyword unevaluatedProperties"),
    ({"$defs": {"x": {"contains": {}}}}, "$.$defs.x: the keyword contains"),
    ({"items": {"propertyNames": {"pattern": "a"}}}, "$.items: the keyword propertyNames"),
    ({"dependentRequired": {"a": ["b"]}}, "$: the keyword dependentRequired"),
    ({"additionalProperties": {"$dynamicRef": "#a"}}, "$.additionalProperties: the keyword $dyn"),
    ({"x-guidance": {"lenient": True}, "type": "string"}, "$: the keyword x-guidance"),
    ({"prefixItems": [{"pattern": "(?=a)b"}]}, "$.prefixItems[0].pattern: regex parse error"),
    ({"$defs": {"a": {"pattern": r"\bb"}}, "$ref": "#/$defs/a"}, "$.$defs.a.pattern: lookaround"),
    (
        {"properties": {"k": {"patternProperties": {"^a": {}, "^ab": {"type": "null"}}}}},
        "$.properties.k.patternProperties: patternProperty regexes /^a/ and /^ab/ are not disjoint",
    ),
    ({"type": "integer", "minimum": -(2**63), "maximum": 5}, "$.minimum: the bounds are too far"),
    ({"anyOf": [{"unevaluatedProperties": False, "$ref": "#"}]}, "$.anyOf[0]: the keyword unev"),
    ({"properties": {"k": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}, "$.properties.k"),
    ({"type": "object", "minProperties": 2}, "$.minProperties: 2 is not supported above"),
    ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "'/$defs/no' does not exist"),
    ({"$ref": "#"}, "refers to itself without an end"),
    ({"enum": []}, "Unsatisfiable"),
    (nested(110), "nested deeper than 100"),
    ({"type": "array", "maxItems": 10**6, "items": {"type": "integer"}}, "more than 10000"),
    (
        {"pattern": "^(a{1,1000000})$"},
        "$.pattern: a repetition of 1000000 exceeds the limit of 10000",
    ),
    (PATTERNS, "more than 4 patterns"),
    (
        {"$defs": {"p": PATTERNS}, "properties": {"a": {"$ref": "#/$defs/p"}}},
        "more than 4 patterns",
    ),
    (
        {"properties": {f"p{i}": {} for i in range(401)}},
        "401 optional properties exceed the limit of 400",
    ),
    ({"oneOf": [{"const": i} for i in range(2000)]}, "more than 1500 branches; use enum"),
    (OPTIONAL, "$.anyOf: too many ways to continue; list more properties in required"),
    ({"type": "array", "items": OPTIONAL}, "$.items.anyOf: too many ways to continue"),
    (OBJECT | {"properties": {"k": OPTIONAL}}, "$.properties.k.anyOf: too many ways to continue"),
]


@pytest.mark.parametrize(("schema", "told"), REFUSED_SCHEMAS, ids=lambda value: str(value)[:40])
def test_a_schema_is_refused_by_keyword_and_path(
    vocabulary: Vocabulary, schema: Any, told: str
) -> None:
    began = time.process_time()
    assert told in refusal(vocabulary, "json_schema", json.dumps(schema))
    assert time.process_time() - began < MAX_SECONDS * slowness()


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("json_schema", "{", "the schema is not JSON"),
        ("json_schema", "[1]", "must be an object, true or false"),
        ("json_schema", "[" * 100_000, "nested deeper"),
        ("regex", "(?<=a)b", "look-around"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("regex", "a{1000000}", "a repetition of 1000000"),
        ("regex", "[", "unclosed character class"),
        ("regex", "(a?){500}a{500}", "repetitions have too many states; use smaller bounds"),
        ("lark", 'start: a\nb: "x"', "unknown name"),
        ("lark", 'start: %json {"not": {}}', "lark: in %json, $: the keyword not"),
        ("lark", 'start: %json {"x-guidance": {"lenient": true}}', "x-guidance is not supported"),
        ("lark", "start: %json {", "not a JSON Schema"),
        ("lark", "start: " + " | ".join(f'"w{i}"' for i in range(9000)), "8999 alternatives"),
        ("lark", "start: x\nx: y\ny: x", "refers to itself without an end"),
        ("lark", "start: A\nA: " + " & ".join(["/.*a/"] * 6), "more than 4 intersections"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_other_forms_are_refused_by_name(
    vocabulary: Vocabulary, kind: str, text: str, told: str
) -> None:
    began = time.process_time()
    assert told in refusal(vocabulary, kind, text)
    assert time.process_time() - began < MAX_SECONDS * slowness()


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"enum": [{"not": 1}, "if"], "default": {"contains": 1}, "examples": [{"not": {}}]},
        {"properties": {"not": {"type": "string"}, "if": {}}, "required": ["not"]},
        {"type": "object", "minProperties": 1},
        {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"oneOf": [OBJECT | {"properties": {"k": {"const": i}}} for i in "ab"]},
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}},
        {"enum": [f"value {i}" for i in range(15_000)]},
        {"type": "string", "maxLength": 1_000_000},
        DOUBLING,
        {"anyOf": [OBJECT | {"properties": {"k": {"const": i}}} for i in range(500)]},
        {"properties": {f"p{i}": {"type": "string"} for i in range(400)}},
        {"properties": {"k": {}}, "patternProperties": {"^k$": {"type": "null"}}},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_can_be_kept_is_taken(vocabulary: Vocabulary, schema: Any) -> None:
    compile_grammar(vocabulary, Grammar.of("json_schema", json.dumps(schema)))
