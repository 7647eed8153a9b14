"""The seventh pass over a body: the form that it asks of the output, with OpenAI's
`response_format` or with vLLM's fields."""

from typing import Any, NamedTuple

import msgspec

from baton.errors import invalid_field
from baton.request.grammar import Grammar
from services.frontend.openai.request.schema import Common
from services.frontend.requests.refusals import unsupported

JSON_OBJECT = Grammar.of("json_schema", '{"type":"object"}')
_GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
"""vLLM's older fields, by what they are called in `structured_outputs`."""
_KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_FORMATS = "text, json_object or json_schema"


class Form(NamedTuple):
    """The form of the output."""

    field: str = ""
    """That says it."""
    grammar: Grammar | None = None
    """None: the output is any text."""
    strict: Any = True
    """Whether all of a schema is to be kept, as the body says it: `response_format` has a field for
    that, which is false where it is not there; other forms are what they say. The next pass refuses
    what is neither true nor false: `logit_bias` comes first."""


def read_form(body: Common) -> Form:
    """Return the form that a body asks for.

    Raises:
        BatonError: it is malformed, or two fields say one.
    """
    found: dict[str, Grammar] = {}
    if (form := _response_format(body.response_format)) is not None:
        found["response_format"] = form
    if body.structured_outputs is not None:
        asked = {k: v for k, v in body.structured_outputs.items() if k in _KINDS and v is not None}
        asked = {k: v for k, v in asked.items() if k != "json_object" or v}
        if len(asked) != 1:
            raise invalid_field(
                "structured_outputs", f"set exactly one of {', '.join(_KINDS[:-1])}"
            )
        ((kind, value),) = asked.items()
        found["structured_outputs"] = form_of(f"structured_outputs.{kind}", kind, value)
    for field, kind in _GUIDED.items():
        value = getattr(body, field)
        if value not in (None, "", []):
            found[field] = form_of(field, kind, value)
    if len(found) > 1:
        raise invalid_field(list(found)[1], f"cannot be combined with {next(iter(found))}")
    for field, grammar in found.items():
        return Form(field, grammar, _strict(body.response_format))
    return Form()


def _strict(asked: dict[str, Any] | None) -> Any:
    match asked:
        case {"type": "json_schema", "json_schema": {"strict": strict}} if strict is not None:
            return strict
        case {"type": "json_schema"}:
            return False
    return True


def _response_format(asked: dict[str, Any] | None) -> Grammar | None:
    match (asked or {}).get("type", "text"):
        case "text":
            return None
        case "json_object":
            return JSON_OBJECT
        case "json_schema":
            inner = (asked or {}).get("json_schema")
            if not isinstance(inner, dict):
                raise invalid_field("response_format.json_schema", "must be an object")
            schema = inner.get("schema")
            if schema is None:
                return JSON_OBJECT
            return form_of("response_format.json_schema.schema", "json", schema)
        case str() as kind:
            raise unsupported("response_format.type", why=f"{kind[:64]!r}; use {_FORMATS}")
    raise invalid_field("response_format.type", f"must be {_FORMATS}")


def form_of(field: str, kind: str, value: Any) -> Grammar:
    """Return the grammar of a form of a kind of `structured_outputs`.

    Raises:
        BatonError: its value has a wrong type, or is not supported.
    """
    match kind, value:
        case "json", dict() | bool():
            return Grammar.of("json_schema", msgspec.json.encode(value).decode())
        case "json", str():
            return Grammar.of("json_schema", value)
        case "json_object", True:
            return JSON_OBJECT
        case "regex", str():
            return Grammar.of("regex", value)
        case "choice", list() if value and all(isinstance(one, str) for one in value):
            return Grammar.of_choices(value)
        case "grammar", str():
            if "::=" in value:
                raise unsupported(field, why="the grammar is GBNF; use llguidance's Lark format")
            return Grammar.of("lark", value)
        case "structural_tag", _:
            raise unsupported(field, why="send tools, with strict to enforce their schemas")
    raise invalid_field(field, "has a wrong type")
