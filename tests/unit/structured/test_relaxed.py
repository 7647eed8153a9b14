"""Keywords that limit nothing are left out, and those that are not kept where that will do."""

import json
from typing import Any

import msgspec
import pytest

from baton.request.grammar import Grammar
from baton.structured.compile import compile_grammar
from baton.structured.errors import GrammarError
from baton.structured.json_schema.relaxed import drop, relaxed
from baton.structured.json_schema.schema import check_schema
from baton.structured.pauses import Pauses
from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary

TEXT = {"type": "string"}


def allows(vocabulary: Vocabulary, schema: Any, document: str) -> bool:
    state = GrammarState(compile_grammar(vocabulary, Grammar.of("json_schema", json.dumps(schema))))
    matcher = state.advance(vocabulary.tokenize(document))
    return matcher is not None and matcher.is_accepting()


@pytest.mark.parametrize(
    "form",
    [
        *("path", "password", "binary", "byte", "uri-reference", "color", "regex", "iri"),
        *("int32", "int64", "float", "double", "decimal", "json-pointer", "idn-email", ""),
    ],
)
def test_formats_that_are_not_known_are_annotations(vocabulary: Vocabulary, form: str) -> None:
    short = {"type": "string", "format": form, "maxLength": 3}
    assert allows(vocabulary, short, '"abc"')
    assert not allows(vocabulary, short, '"abcd"')
    number = {"type": "integer", "format": form, "minimum": 1, "maximum": 3}
    inner = {"properties": {"a": {"anyOf": [number, {"type": "null"}]}}}
    assert allows(vocabulary, inner, '{"a": 2}')
    assert not allows(vocabulary, inner, '{"a": 4}')
    lark = f"start: %json {json.dumps(short)}"
    compile_grammar(vocabulary, Grammar.of("lark", lark))


@pytest.mark.parametrize(
    ("idle", "document"),
    [
        ({"type": "array", "items": TEXT, "uniqueItems": False}, '["a", "a"]'),
        ({"type": "object", "propertyNames": {"type": "string"}}, '{"a": 1}'),  # zod's records
        ({"type": "object", "propertyNames": {}}, '{"a": 1}'),
        ({"not": False}, "1"),
        ({"then": {"type": "null"}}, "1"),
        ({"if": {"type": "null"}}, "1"),
        ({"minContains": 1, "maxContains": 2}, "[]"),
        ({"dependentRequired": {}, "dependencies": {}, "dependentSchemas": {}}, "{}"),
        ({"unevaluatedProperties": True, "anyOf": [{}]}, '{"a": 1}'),
        ({"$dynamicAnchor": "node", "type": "null"}, "null"),
    ],
)
def test_keywords_that_limit_nothing_are_left_out(
    vocabulary: Vocabulary, idle: dict[str, Any], document: str
) -> None:
    assert allows(vocabulary, idle, document)


def test_what_is_unevaluated_is_additional_where_nothing_is_combined(
    vocabulary: Vocabulary,
) -> None:
    closed = {"type": "object", "properties": {"a": TEXT}, "unevaluatedProperties": False}
    assert allows(vocabulary, closed, '{"a": "x"}')
    assert not allows(vocabulary, closed, '{"b": "x"}')
    open_ = closed | {"additionalProperties": TEXT}  # all are evaluated
    assert allows(vocabulary, open_, '{"b": "x"}')
    pair = {"type": "array", "prefixItems": [TEXT], "unevaluatedItems": False}
    assert allows(vocabulary, pair, '["a"]')
    assert not allows(vocabulary, pair, '["a", "b"]')


@pytest.mark.parametrize(
    ("patterns", "right", "wrong"),
    [
        ({"^score$": {"minimum": 3}}, ["{}", '{"score": 5}'], ['{"score": 1}', '{"score": 5, "']),
        ({"^(score|n)$": {"minimum": 3}}, ['{"score": 5, "n": 3}'], ['{"n": 1}']),
        (
            {"^score$": {"minimum": 3}, "^n$": {"maximum": 1}},
            ['{"score": 5, "n": 1}'],
            ['{"n": 2}'],
        ),
        # Others are named, too.
        ({"^s": {"minimum": 3}}, ['{"score": 5, "n": 0, "s": 3}'], ['{"score": 1}', '{"s": 1}']),
        ({"^x$": {"minimum": 3}}, ['{"score": 1, "x": 3}'], ['{"x": 1}']),
    ],
)
def test_properties_that_patterns_name_too_keep_to_both(
    vocabulary: Vocabulary, patterns: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer"}, "n": {"type": "integer"}},
        "patternProperties": {name: one | {"type": "integer"} for name, one in patterns.items()},
        "additionalProperties": False,
    }
    for document in right:
        assert allows(vocabulary, schema, document)
    for document in wrong:
        assert not allows(vocabulary, schema, document)


def test_an_object_that_has_all_its_properties_ends(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer"}},
        "patternProperties": {"^score$": {"type": "integer"}},
        "additionalProperties": False,
    }
    compiled = compile_grammar(vocabulary, Grammar.of("json_schema", json.dumps(schema)))
    matcher = GrammarState(compiled).advance(vocabulary.tokenize('{"score": 5'))
    assert matcher is not None
    assert matcher.validate_tokens(vocabulary.tokenize("}")) == 1
    assert matcher.validate_tokens(vocabulary.tokenize(", ")) == 0


def kept(vocabulary: Vocabulary, schema: Any) -> Any:
    """Return a schema as it is kept where the client does not insist."""
    made = relaxed(json.dumps(schema))
    while True:
        try:
            compile_grammar(vocabulary, Grammar.of("json_schema", json.dumps(made)))
        except GrammarError as error:
            assert error.keyword
            drop(made, error.keyword)
        else:
            return made


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
            {"type": "object", "properties": {"a": {"type": "array"}}},
        ),
        ({"type": "string", "pattern": "^(?!x)a", "maxLength": 3}, TEXT | {"maxLength": 3}),
        (
            {"$defs": {"a": {"pattern": "(?=a)", "minLength": 1}}, "$ref": "#/$defs/a"},
            {"$defs": {"a": {"minLength": 1}}, "$ref": "#/$defs/a"},
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}], "anyOf": [{}], "allOf": [{}]},
            {"anyOf": [{}], "allOf": [{}, {"anyOf": [{"type": "integer"}, {"type": "number"}]}]},
        ),
        ({"type": "object", "minProperties": 2}, {"type": "object"}),
        ({"type": "integer", "minimum": -(2**63), "maximum": 5}, {"type": "integer", "maximum": 5}),
        (
            {"type": "object", "patternProperties": {"^a": {}, "^ab": {"type": "null"}}},
            {"type": "object"},
        ),
        ({"not": {}, "if": {}, "then": {}, "else": {}, "x-guidance": {}}, {}),
        (
            {"enum": [{"not": 1}], "properties": {"not": {"not": {}}}},
            {"enum": [{"not": 1}], "properties": {"not": {}}},
        ),
    ],
)
def test_all_else_of_a_schema_is_kept(vocabulary: Vocabulary, schema: Any, left: Any) -> None:
    with pytest.raises(GrammarError) as caught:
        compile_grammar(vocabulary, Grammar.of("json_schema", json.dumps(schema)))
    keyword = caught.value.keyword
    assert keyword
    assert str(keyword[-1]) in str(caught.value)
    assert kept(vocabulary, schema) == left


@pytest.mark.parametrize("schema", [{"type": "banana"}, {"$ref": "#/$defs/no"}, {"enum": []}])
def test_what_is_wrong_is_no_keyword_that_could_be_left_out(
    vocabulary: Vocabulary, schema: Any
) -> None:
    with pytest.raises(GrammarError) as caught:
        compile_grammar(vocabulary, Grammar.of("json_schema", json.dumps(schema)))
    assert not caught.value.keyword


def test_a_schema_that_has_none_of_these_is_not_changed() -> None:
    schema = {"properties": {"format": {"format": "date"}, "not": {"enum": [{"format": "x"}]}}}
    before = msgspec.json.encode(schema)
    assert not check_schema(schema, Pauses())
    assert msgspec.json.encode(schema) == before
