"""What becomes of each field of a response's body, as the table says."""

from typing import Any, get_type_hints

import msgspec
import pytest

from baton.errors import BatonError, Reason
from services.frontend.openai.request.field import Field, Treatment
from services.frontend.openai.responses.fields import RESPONSE_FIELDS
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


def test_a_body_has_no_other_fields() -> None:
    with pytest.raises(BatonError) as caught:
        read(messages=[])
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, "messages")
    read_response(b'{"messages": []}', unknown=True)
