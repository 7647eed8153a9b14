"""What becomes of each field of a response's body, as the table says."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from baton.errors import BatonError, Reason
from services.frontend.openai.request.field import Field, Treatment
from services.frontend.openai.responses.fields import RESPONSE_FIELDS
from services.frontend.openai.responses.input.item_types import NOT_TAKEN, TAKEN
from services.frontend.openai.responses.parse import read_response
from services.frontend.openai.responses.schema import RESPONSE, ResponseBody

ANYTHING: tuple[Any, ...] = ("x", 7, 0.5, True, ["x"], {"x": 1})


def read(**fields: Any) -> ResponseBody:
    return read_response(msgspec.json.encode(fields))


@pytest.mark.xdist_group("openai")
def test_every_field_that_openai_documents_is_known() -> None:
    from openai.types.responses import response_create_params as documented  # takes a second

    fields = {
        *get_type_hints(documented.ResponseCreateParamsBase),
        *get_type_hints(documented.ResponseCreateParamsStreaming),
    }
    ours = [field.name for field in RESPONSE_FIELDS]
    assert fields <= set(ours)
    assert len(ours) == len(set(ours))
    assert set(RESPONSE.__struct_fields__) == set(ours)


@pytest.mark.parametrize("field", RESPONSE_FIELDS, ids=lambda field: field.name)
def test_what_becomes_of_it_is_what_the_table_says(field: Field) -> None:
    served = ResponseBody.__struct_fields__
    assert (field.name in served) == (field.treatment is Treatment.SERVED)
    read(**{field.name: None})
    if field.treatment is Treatment.IGNORED:
        for value in ANYTHING:
            read(**{field.name: value})
    if field.treatment is Treatment.REFUSED:
        for value in field.nothing:
            read(**{field.name: value})
        for value in ANYTHING:
            if value in field.nothing:
                continue
            with pytest.raises(BatonError) as caught:
                read(**{field.name: value})
            error = caught.value
            assert (error.reason, error.field) == (Reason.UNSUPPORTED_PARAMETER, field.name)


@pytest.mark.parametrize(
    ("field", "value", "nothing"),
    [("context", "all_turns", "auto"), ("mode", "pro", "standard")],
)
def test_what_of_reasoning_is_refused(field: str, value: str, nothing: str) -> None:
    read(reasoning={field: nothing, "summary": "auto"})
    with pytest.raises(BatonError) as caught:
        read(reasoning={field: value})
    assert (caught.value.reason, caught.value.field) == (
        Reason.UNSUPPORTED_PARAMETER,
        f"reasoning.{field}",
    )


@pytest.mark.xdist_group("openai")
def test_every_item_that_openai_documents_is_taken_or_refused_by_name() -> None:
    from openai.types.responses import response_input_item_param as documented  # takes a second

    types: set[str] = set()
    for one in get_args(documented.ResponseInputItemParam):
        hints = get_type_hints(one, include_extras=True)
        types |= set(literals(hints["type"]))
    assert types == {*TAKEN, *NOT_TAKEN}


def literals(hint: Any) -> list[str]:
    """Return the values of a literal type, within any other."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for inner in get_args(hint) for value in literals(inner)]


def test_a_body_has_no_other_fields() -> None:
    with pytest.raises(BatonError) as caught:
        read(messages=[])
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, "messages")
    read_response(b'{"messages": []}', unknown=True)
