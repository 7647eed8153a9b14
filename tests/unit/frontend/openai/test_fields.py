"""What becomes of each field of a completion's body, whoever documents it."""

import json
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from baton.errors import BatonError, Reason
from services.frontend.openai.request.decode import read_chat, read_completion
from services.frontend.openai.request.field import Body, Field, Treatment
from services.frontend.openai.request.fields import FIELDS
from services.frontend.openai.request.schema import CHAT, COMPLETION, ChatBody, CompletionBody

# Of vLLM 0.32's ChatCompletionRequest and CompletionRequest.
VLLM = json.loads((Path(__file__).parents[3] / "data/vllm_fields.json").read_text())
READ = {Body.CHAT: read_chat, Body.COMPLETION: read_completion}
CASES = [(field, body) for field in FIELDS for body in READ if field.belongs_to(body)]
ANYTHING: tuple[Any, ...] = ("x", 7, 0.5, True, ["x"], {"x": 1})


def read(body: Body, **fields: Any) -> ChatBody | CompletionBody:
    return READ[body](msgspec.json.encode(fields))


@pytest.mark.xdist_group("openai")
@pytest.mark.parametrize("body", READ)
def test_every_field_that_openai_or_vllm_document_is_known(body: Body) -> None:
    from openai.types import completion_create_params as openai_completion  # takes a second
    from openai.types.chat import completion_create_params as openai_chat

    module: Any = openai_chat if body is Body.CHAT else openai_completion
    documented = {
        *get_type_hints(module.CompletionCreateParamsBase),
        *get_type_hints(module.CompletionCreateParamsStreaming),
        *VLLM[body.value],
    }
    ours = [field.name for field in FIELDS if field.belongs_to(body)]
    assert documented <= set(ours)
    assert len(ours) == len(set(ours))


@pytest.mark.parametrize(("field", "body"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_what_becomes_of_it_is_what_the_table_says(field: Field, body: Body) -> None:
    served = {Body.CHAT: ChatBody, Body.COMPLETION: CompletionBody}[body].__struct_fields__
    assert (field.name in served) == (field.treatment is Treatment.SERVED)
    read(body, **{field.name: None})
    if field.treatment is Treatment.IGNORED:
        for value in ANYTHING:
            read(body, **{field.name: value})
    if field.treatment is Treatment.REFUSED:
        for value in field.nothing:
            read(body, **{field.name: value})
        for value in ANYTHING:
            if value in field.nothing:
                continue
            with pytest.raises(BatonError) as caught:
                read(body, **{field.name: value})
            error = caught.value
            assert (error.reason, error.field) == (Reason.UNSUPPORTED_PARAMETER, field.name)
            assert error.message.startswith(field.name)
            assert "not supported" in error.message


@pytest.mark.parametrize("body", READ)
def test_a_body_has_no_other_fields(body: Body) -> None:
    struct = CHAT if body is Body.CHAT else COMPLETION
    known = {field.name for field in FIELDS if field.belongs_to(body)}
    assert set(struct.__struct_fields__) == known
    with pytest.raises(BatonError) as caught:
        read(body, temprature=1)
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, "temprature")
    READ[body](b'{"temprature": 1}', unknown=True)
