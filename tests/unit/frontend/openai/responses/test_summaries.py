"""A summary stands for a turn of its own, and is read for its tenant only."""

import json
from typing import Any

import pytest

from baton.errors import BatonError
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.compaction.body import read_compact
from services.frontend.openai.responses.compaction.fields import COMPACT_FIELDS
from services.frontend.openai.responses.compaction.summary import compaction_item, summary_request
from services.frontend.openai.responses.input.sealing import SUMMARY, ItemSeal
from services.frontend.openai.responses.input.summaries import QUESTION
from services.frontend.openai.responses.parse import read_response, response_request
from services.frontend.output.definitions import CallMode
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.text.chat_template import ChatMessage

SEAL = ItemSeal(b"a" * 32)
SAID = "They want a boat, é 🤖\n"
SEALED = SEAL.close(SAID, SUMMARY)
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def request_of(given: Any, **fields: Any) -> GenerationRequest:
    body = read_response(json.dumps({"model": "m", "input": given, **fields}).encode())
    return response_request(body, RequestNames("r"), 99, SEAL).generation


def messages_of(given: Any) -> list[ChatMessage]:
    prompt = request_of(given).prompt
    assert isinstance(prompt, ChatPrompt)
    return list(prompt.messages)


def test_an_item_of_compaction_is_a_question_and_its_answer() -> None:
    from uuid import UUID

    item = compaction_item(SAID, SEAL, UUID(int=7))
    assert item["id"] == f"cmp_{7:032x}"
    assert SAID not in json.dumps(item, ensure_ascii=False)
    user = {"role": "user", "content": "hi"}
    assert messages_of([{"role": "system", "content": "be kind"}, item, user]) == [
        ChatMessage("system", "be kind"),
        ChatMessage("user", QUESTION),
        ChatMessage("assistant", SAID),
        ChatMessage("user", "hi"),
    ]


FORGED = {
    "another tenant's": ItemSeal(b"b" * 32).close(SAID, SUMMARY),
    "of reasoning": SEAL.close(SAID),
    "cut": SEALED[:-8],
    "changed": SEALED[:90] + ("A" if SEALED[90] != "A" else "B") + SEALED[91:],
    "empty": "",
    "missing": None,
    "no text": 7,
}


@pytest.mark.parametrize("sealed", FORGED.values(), ids=FORGED)
def test_what_was_not_sealed_as_a_summary_for_the_tenant_is_refused(sealed: Any) -> None:
    with pytest.raises(BatonError) as caught:
        messages_of([{"type": "compaction", "encrypted_content": sealed}])
    assert (caught.value.http_status, caught.value.field) == (400, "input[0].encrypted_content")


def test_a_summary_is_no_reasoning() -> None:
    with pytest.raises(BatonError) as caught:
        messages_of([{"type": "reasoning", "encrypted_content": SEALED}])
    assert caught.value.field == "input[0].encrypted_content"


def test_the_prompt_of_a_summary_begins_as_the_conversation_did() -> None:
    asked = request_of(
        "hi", tools=[TOOL], tool_choice="required", temperature=0.5, max_output_tokens=3
    )
    assert isinstance(asked.prompt, ChatPrompt)
    made = summary_request(asked, asked.prompt.messages, 256)
    assert isinstance(made.prompt, ChatPrompt)
    assert made.prompt.messages == [ChatMessage("user", "hi"), ChatMessage("user", QUESTION)]
    assert made.prompt.options.tools == asked.prompt.options.tools
    assert made.tools is not None
    assert made.tools.calls is CallMode.NONE
    assert (made.sampling.max_tokens, made.given, made.most_output) == (None, frozenset(), 256)


@pytest.mark.xdist_group("openai")
def test_every_field_that_openai_documents_is_known() -> None:
    from openai.types.responses import response_compact_params as documented  # takes a second

    documented_names = set(documented.ResponseCompactParams.__annotations__)
    assert documented_names <= {field.name for field in COMPACT_FIELDS}


def test_a_body_has_no_other_fields() -> None:
    body = read_compact(b'{"model": "m", "input": "hi", "image": {}}')
    assert (body.model, body.input, body.store) == ("m", "hi", False)
    with pytest.raises(BatonError) as caught:
        read_compact(b'{"model": "m", "stream": true}')
    assert caught.value.field == "stream"
    assert read_compact(b'{"stream": true}', unknown=True).stream is None
