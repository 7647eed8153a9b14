"""Schemas as generators write them: all that can be kept is kept, and what cannot be is said."""

import json
from typing import Any

import pytest

TEXT = {"type": "string", "maxLength": 3}


def form(schema: Any, **fields: Any) -> dict[str, Any]:
    """Return the fields of a body that asks for a schema."""
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, **fields},
        },
        "max_tokens": 40,
    }


def tool(schema: Any, **fields: Any) -> dict[str, Any]:
    """Return the fields of a body whose answer calls a tool of a schema."""
    function = {"name": "f", "parameters": schema, **fields}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "max_tokens": 60,
    }


def said(answer: Any) -> Any:
    """Return the value that an answer is, or the arguments of its call."""
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] in ("stop", "tool_calls")
    message = choice["message"]
    if calls := message.get("tool_calls"):
        return json.loads(calls[0]["function"]["arguments"])
    return json.loads(message["content"])


@pytest.mark.parametrize("strict", [None, False, True])
@pytest.mark.parametrize(
    "form_of", ["path", "password", "binary", "uri-reference", "color", "byte", "regex"]
)
async def test_formats_that_are_not_known_are_annotations(
    asked: Any, form_of: str, strict: bool | None
) -> None:
    schema = {"type": "string", "format": form_of, "maxLength": 3}
    found = said(await asked.chat(**form(schema, strict=strict)))
    assert isinstance(found, str)
    assert len(found) <= 3
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    assert len(said(await asked.chat(**tool(whole, strict=strict)))["a"]) <= 3


@pytest.mark.parametrize("form_of", ["int32", "int64", "uint8", "float"])
async def test_formats_of_numbers_are_annotations(asked: Any, form_of: str) -> None:
    schema = {"type": "integer", "format": form_of, "minimum": 1, "maximum": 3}
    assert said(await asked.chat(**form(schema, strict=True))) in (1, 2, 3)
    assert said(await asked.chat(guided_json=schema)) in (1, 2, 3)


UNSUPPORTED = [
    ("not", {"not": {"maxLength": 0}}),
    ("if", {"if": {"minLength": 1}, "then": {}}),
    ("pattern", {"pattern": "^(?!no)[a-z]+$"}),
]


@pytest.mark.parametrize(("keyword", "what"), UNSUPPORTED)
async def test_what_is_not_kept_is_left_out_or_refused_by_one_rule(
    asked: Any, keyword: str, what: dict[str, Any]
) -> None:
    schema = {
        "type": "object",
        "properties": {"a": TEXT | what, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    for ask, param in ((form, "response_format"), (tool, "tools[0].function.parameters")):
        refused = await asked.chat(**ask(schema, strict=True))
        error = refused.json()["error"]
        assert (refused.status_code, error["param"], error["code"]) == (400, param, "invalid_value")
        assert f"$.properties.a.{keyword}" in error["message"] or (
            f"$.properties.a: the keyword {keyword} " in error["message"]
        )
        for strict in (False, None):
            found = said(await asked.chat(**ask(schema, strict=strict)))
            assert found.keys() == {"a", "b"}  # all else is kept
            assert len(found["a"]) <= 3
    for field, value in (("guided_json", schema), ("structured_outputs", {"json": schema})):
        refused = await asked.chat(**{field: value})
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, field)
        assert keyword in error["message"]


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("uniqueItems", {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}),
        ("contains", {"type": "array", "items": {"enum": [1]}, "contains": {"const": 1}}),
        (
            "propertyNames",
            {"type": "object", "propertyNames": {"pattern": "^a"}, "maxProperties": 1},
        ),
        ("minProperties", {"type": "object", "minProperties": 2, "maxProperties": 3}),
        ("oneOf", {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}),
        (
            "patternProperties",
            {"type": "object", "patternProperties": {"^a": {}, "^ab": {}}, "maxProperties": 1},
        ),
        ("unevaluatedProperties", {"anyOf": [{"const": 1}], "unevaluatedProperties": False}),
        ("minimum", {"type": "integer", "minimum": -(2**63), "maximum": 3}),
    ],
)
async def test_each_keyword_is_named(asked: Any, keyword: str, schema: Any) -> None:
    refused = await asked.chat(**form(schema, strict=True))
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "response_format")
    assert keyword in error["message"]
    answer = await asked.chat(**form(schema, strict=False))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("strict", [None, True, 5])
async def test_what_is_wrong_is_refused_whether_strict_or_not(asked: Any, strict: Any) -> None:
    refused = await asked.chat(**form({"type": "banana"}, strict=strict))
    param = refused.json()["error"]["param"]
    assert refused.status_code == 400
    assert param == ("response_format.json_schema.strict" if strict == 5 else "response_format")


async def test_a_property_that_is_a_pattern_too_keeps_to_both(asked: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer"}},
        "patternProperties": {"^score$": {"minimum": 3, "maximum": 5}},
        "required": ["score"],
        "additionalProperties": False,
    }
    for strict in (None, True):
        assert said(await asked.chat(**form(schema, strict=strict)))["score"] in (3, 4, 5)
    del schema["required"]
    answer = await asked.chat(**form(schema))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
        {
            "$ref": "#/$defs/A%3CB%3E",
            "$defs": {"A<B>": {"enum": [1, 2]}},
        },
        {"enum": ["a", 1, None]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "const": True, "title": "x"},
        {"anyOf": [{"type": "null"}, {"type": "boolean"}], "default": None, "x-order": 1},
        {"type": ["boolean", "null"], "nullable": True, "example": True, "deprecated": False},
        {"type": "array", "items": {"type": "null"}, "maxItems": 2, "uniqueItems": False},
        {"type": "object", "propertyNames": {"type": "string"}, "maxProperties": 0},
    ],
)
async def test_schemas_of_generators_are_kept(asked: Any, schema: dict[str, Any]) -> None:
    found = said(await asked.chat(**form(schema, strict=True)))
    if "minItems" in schema:
        assert len(found) == 2


async def test_a_schema_that_refers_to_itself_is_kept(asked: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}
    found = said(await asked.chat(**form(schema, strict=True) | {"max_tokens": 300}))
    while found:
        assert found.keys() == {"a"}
        found = found["a"]


@pytest.mark.parametrize("parameters", [..., {}, None, {"type": "object"}, {"type": ["object"]}])
async def test_a_function_without_parameters_has_no_arguments(asked: Any, parameters: Any) -> None:
    function = {"name": "f"} if parameters is ... else {"name": "f", "parameters": parameters}
    named = {"type": "function", "function": {"name": "f"}}
    tools = [{"type": "function", "function": function}]
    answer = await asked.chat(tools=tools, tool_choice=named, max_tokens=60)
    assert answer.status_code == 200, answer.text
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    if not parameters or parameters is ...:
        assert call["function"]["arguments"] == "{}"
