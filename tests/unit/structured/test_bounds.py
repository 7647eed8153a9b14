"""JSON ends where its schema sets no bounds, and what a schema allows can be written."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from baton.request.grammar import Grammar
from baton.structured.compile import CompiledGrammar, compile_grammar
from baton.structured.errors import GrammarError
from baton.structured.json_schema.bounds import Bounds
from baton.structured.masks import MaskRequest, Masks
from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary
from tests.support.examples import examples

BOUNDS = Bounds(digits=40, levels=24)
MOST = 1_500
"""Tokens of an output; what has no end has more."""
Schema = dict[str, Any] | bool


@pytest.fixture(scope="module")
def masks(vocabulary: Vocabulary) -> Iterator[Masks]:
    found = Masks(vocabulary)
    yield found
    found.close()


def compiled(vocabulary: Vocabulary, schema: Schema, bounds: Bounds = BOUNDS) -> CompiledGrammar:
    text = bounds.added_to(json.dumps(schema))
    return compile_grammar(vocabulary, Grammar.of("json_schema", text))


def allowed(masks: Masks, state: GrammarState, output: list[int]) -> list[int]:
    mask = masks.compute([MaskRequest(state, output, 0, frozenset())])[0]
    assert not state.error, state.error
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return [int(token) for token in bits.nonzero()[0]]


def ends(vocabulary: Vocabulary, token: int) -> bool:
    return token in vocabulary._tokenizer.eos_tokens


def write(masks: Masks, found: CompiledGrammar, wanted: str) -> str | None:
    """Write with a model that wants this text, as far as it may, and then the shortest end.

    Returns:
        What it wrote; None: all that it wanted.
    """
    vocabulary = found.vocabulary
    state, output = GrammarState(found), list[int]()
    for token in vocabulary.tokenize(wanted):
        may = allowed(masks, state, output)
        if token not in may:
            break
        output.append(token)
    else:
        return None
    shortest = [vocabulary.tokenize(one)[0] for one in '}]0n"']
    for _ in range(200):
        may = allowed(masks, state, output)
        if any(ends(vocabulary, one) for one in may):
            return vocabulary._tokenizer.decode_str(output)
        output.append(next((one for one in shortest if one in may), may[0]))
    raise AssertionError(f"no end-of {wanted[:20]}")


def reachable(masks: Masks, found: CompiledGrammar, text: str) -> bool:
    """Return whether a text can be written, token by token, with what masks allow."""
    state, output = GrammarState(found), list[int]()
    for token in found.vocabulary.tokenize(text):
        if token not in allowed(masks, state, output):
            return False
        output.append(token)
    return any(ends(found.vocabulary, one) for one in allowed(masks, state, output))


_NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["v"],
    "additionalProperties": False,
}
_MANY = MOST // 6
WITHOUT_END = [
    pytest.param({"type": "integer"}, "7" * MOST, id="integer"),
    pytest.param({"type": "number"}, "7" * MOST, id="number"),
    pytest.param({"type": "number"}, "0." + "7" * MOST, id="fraction"),
    pytest.param({"type": "number"}, "1e" + "7" * MOST, id="exponent"),
    pytest.param({"type": "integer", "minimum": 3}, "7" * MOST, id="only from below"),
    pytest.param({"type": "number", "maximum": 3}, "-" + "7" * MOST, id="only from above"),
    pytest.param({"type": "number", "minimum": 0, "maximum": 1}, "0." + "7" * MOST, id="between"),
    pytest.param({"type": "integer", "multipleOf": 7}, "7" * MOST, id="a multiple"),
    pytest.param({}, "[" * MOST, id="any value"),
    pytest.param({"type": "object"}, '{"a":' * _MANY, id="any object"),
    pytest.param({"type": "array"}, "[" * MOST, id="any array"),
    pytest.param({"properties": {"a": True}}, '{"a":' * _MANY, id="any property"),
    pytest.param({"allOf": [{"type": "object"}, {}]}, '{"a":' * _MANY, id="all of"),
    pytest.param({"anyOf": [{"type": "array"}, {}]}, "[" * MOST, id="any of"),
    pytest.param(True, "[" * MOST, id="true"),
    pytest.param(
        {"type": "array", "prefixItems": [{"type": "null"}]}, "[null," + "[" * MOST, id="more items"
    ),
    pytest.param(
        {"$defs": {"node": _NODE}, "$ref": "#/$defs/node"},
        '{"v":1,"next":' * _MANY,
        id="refers to itself",
    ),
    pytest.param({"type": "array", "items": {"$ref": "#"}}, "[" * MOST, id="refers to the root"),
]


@pytest.mark.parametrize(("schema", "wanted"), WITHOUT_END)
def test_what_has_no_end_gets_one(
    vocabulary: Vocabulary, masks: Masks, schema: Schema, wanted: str
) -> None:
    text = write(masks, compiled(vocabulary, schema), wanted)
    assert text is not None
    json.loads(text)


def test_without_bounds_there_is_none(vocabulary: Vocabulary, masks: Masks) -> None:
    for schema, wanted in (({"type": "integer"}, "7" * 500), ({"type": "array"}, "[" * 500)):
        assert write(masks, compiled(vocabulary, schema, Bounds()), wanted) is None


def test_the_bounds_are_those_that_are_set(vocabulary: Vocabulary, masks: Masks) -> None:
    bounds = Bounds(digits=5, levels=2)
    assert write(masks, compiled(vocabulary, {"type": "integer"}, bounds), "7" * 9) == "77777"
    found = compiled(vocabulary, {"type": "array"}, bounds)
    assert reachable(masks, found, "[[[1]]]")
    assert not reachable(masks, found, "[[[[]]]]")
    number = compiled(vocabulary, {"type": "number"}, bounds)
    assert reachable(masks, number, "12345.12345e123")
    for text in ("123456", "1.123456", "1e1234"):
        assert not reachable(masks, number, text), text


def test_strings_and_text_around_json_have_no_digits_too_many(
    vocabulary: Vocabulary, masks: Masks
) -> None:
    digits = "7" * 60
    found = compiled(vocabulary, {"type": "string"}, Bounds(digits=5))
    assert reachable(masks, found, f'"{digits}"')
    found = compiled(vocabulary, {"type": "string", "pattern": "^[0-9]{60}$"}, Bounds(digits=5))
    assert reachable(masks, found, f'"{digits}"')
    schema = Bounds(digits=5).added_to('{"type":"integer"}')
    mixed = Grammar.of("lark", f"start: /[0-9a-z ]*:/ %json {schema}")
    found = compile_grammar(vocabulary, mixed)
    assert reachable(masks, found, f"a {digits}:12345")
    assert not reachable(masks, found, f"a {digits}:123456")


_FARTHEST = 10**18 - 65
"""The library reads limits as doubles, and refuses 10**18, to which those beyond are rounded."""
numbers = st.one_of(
    st.integers(-_FARTHEST, _FARTHEST),
    st.integers(-1000, 1000),
    st.floats(-1e12, 1e12, allow_nan=False)
    .map(lambda x: float(f"{x:.6g}"))
    .filter(lambda x: "e" not in json.dumps(x)),
)


@settings(max_examples=examples(24), deadline=None)
@given(value=numbers, low=numbers, high=numbers, few=st.sampled_from((1, 3)))
@example(value=0.75, low=0, high=1, few=1)  # more digits than its limits
@example(value=1.23456, low=1.2, high=2, few=1)  # behind the point, of more than 1
def test_every_value_that_a_schema_names_or_limits_can_be_written(
    vocabulary: Vocabulary, masks: Masks, value: float, low: float, high: float, few: int
) -> None:
    low, value, high = sorted((low, value, high))
    kind = "integer" if isinstance(value, int) else "number"
    both = {"minimum": low, "maximum": high}
    named: list[dict[str, Any]] = [{"enum": [value, low]}, {"const": value}]
    limited: list[dict[str, Any]] = []
    if kind == "number" or isinstance(low + high, int):
        named.append({"type": kind, **both})
        limited += [{"type": kind, name: limit} for name, limit in both.items()]
    text = json.dumps(value)
    for schema in (*named, *limited):
        if not reachable(masks, compiled(vocabulary, schema, Bounds()), text):
            continue  # the library writes it in another way
        assert reachable(masks, compiled(vocabulary, schema), text), schema
        # However few digits are set, they are of numbers that the schema leaves open.
        if schema in named:
            found = compiled(vocabulary, schema, Bounds(few, 1))
            assert reachable(masks, found, text), schema


def test_a_limit_of_more_digits_than_the_bound_is_reached(
    vocabulary: Vocabulary, masks: Masks
) -> None:
    least = 10**17
    found = compiled(vocabulary, {"type": "integer", "minimum": least}, Bounds(digits=3))
    assert reachable(masks, found, str(least + 1))
    found = compiled(vocabulary, {"enum": [1e30, 1e35]}, Bounds(digits=3))
    for value in (10**30, 10**35):
        assert reachable(masks, found, str(value))


@pytest.mark.parametrize(
    "limited",
    [
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        {"minimum": 0, "maximum": 1},
        {"allOf": [{"type": "number"}, {"minimum": 0, "maximum": 1}]},
        {"type": "number", "minimum": 0},
    ],
)
def test_a_double_between_limits_is_reached(
    vocabulary: Vocabulary, masks: Masks, limited: Schema
) -> None:
    """However few digits are set; JavaScript writes smaller ones with an exponent."""
    found = compiled(vocabulary, limited, Bounds(digits=1, levels=1))
    for text in ("0.75", "0.0000012345678901234567"):
        assert reachable(masks, found, text), text


LONG = [f"v{at}" for at in range(20_000)]


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": LONG},
        {"anyOf": [{"enum": LONG}]},
        {"allOf": [{"enum": LONG}]},
        {"$defs": {"one": {"enum": LONG}}, "$ref": "#/$defs/one"},
    ],
    ids=["enum", "anyOf", "allOf", "reference"],
)
def test_bounds_leave_long_lists_of_values_as_they_are(
    vocabulary: Vocabulary, masks: Masks, schema: Schema
) -> None:
    found = compiled(vocabulary, schema)
    assert reachable(masks, found, '"v19999"')
    assert not reachable(masks, found, '"v20000"')


def test_what_refers_to_itself_and_needs_much_is_written(
    vocabulary: Vocabulary, masks: Masks
) -> None:
    """A way through more definitions than there are levels, before it may end."""
    count = 12
    schema = {
        "$defs": {
            f"d{at}": {
                "type": "object",
                "properties": {
                    "n": {
                        "anyOf": [
                            {"$ref": f"#/$defs/d{(at + 1) % count}"},
                            *([{"type": "null"}] if at == count - 1 else []),
                        ]
                    }
                },
                "required": ["n"],
                "additionalProperties": False,
            }
            for at in range(count)
        },
        "$ref": "#/$defs/d0",
    }
    found = compiled(vocabulary, schema, Bounds(levels=4))
    assert reachable(masks, found, '{"n": ' * count + "null" + "}" * count)
    twice = '{"n": ' * (2 * count) + "null" + "}" * (2 * count)
    assert reachable(masks, found, twice)
    assert not reachable(masks, found, '{"n": ' * (5 * count) + "null" + "}" * (5 * count))


@pytest.mark.parametrize(
    "said", [5, {"digits": -1}, {"digits": True}, {"levels": 65}, {"depth": 3}, {"digits": 1.5}]
)
def test_bounds_that_are_none_are_refused(vocabulary: Vocabulary, said: object) -> None:
    with pytest.raises(GrammarError, match=r"^\$\.x-bounds"):
        compiled(vocabulary, {"type": "integer", "x-bounds": said})


def test_bounds_of_the_schema_itself_are_kept() -> None:
    assert BOUNDS.added_to('{"x-bounds": {"digits": 3}}') == '{"x-bounds": {"digits": 3}}'
    assert BOUNDS.added_to("false") == "false"
    assert Bounds().added_to("{}") == "{}"
