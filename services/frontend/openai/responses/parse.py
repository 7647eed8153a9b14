"""From the body of a response to a request of the frontend's own kind.

The passes are those of chat completions (`request.parse`), with other shapes of items and tools.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from baton.errors import invalid_field
from baton.sampling import PARAMETERS
from services.frontend.http.json_body import decode_body
from services.frontend.openai.metadata import check_metadata
from services.frontend.openai.request.checks import refuse_unsupported
from services.frontend.openai.request.fields import OTHER_SHAPE
from services.frontend.openai.request.parameters import parameters
from services.frontend.openai.request.parse import EXECUTION_HEADER, RequestNames
from services.frontend.openai.request.response_format import JSON_OBJECT, Form, form_of
from services.frontend.openai.request.schema import ChatBody
from services.frontend.openai.request.shape import refused
from services.frontend.openai.responses.compaction.history import NO_SUMMARY, SummaryNote
from services.frontend.openai.responses.compaction.management import threshold_of
from services.frontend.openai.responses.fields import RESPONSE_FIELDS
from services.frontend.openai.responses.input.items import messages_of
from services.frontend.openai.responses.input.sealing import INCLUDE, ItemSeal
from services.frontend.openai.responses.input.tools import ResponseTools, read_tools
from services.frontend.openai.responses.schema import (
    ANY_RESPONSE,
    RESPONSE,
    ReasoningConfig,
    ResponseBody,
)
from services.frontend.openai.responses.truncation import AUTO
from services.frontend.openai.service_tier import class_of
from services.frontend.requests.prompt_fields import template_options
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import ChatPrompt, GenerationRequest, PromptOptions

LOGPROBS = "message.output_text.logprobs"
_NAMES = {
    "execution_id": EXECUTION_HEADER.decode(),
    "logprobs": "top_logprobs",
    "max_tokens": "max_output_tokens",
}
_TRUNCATIONS = ("disabled", AUTO)
_FORMATS = "text, json_object or json_schema"
_REFUSED = refused(RESPONSE_FIELDS)
_decoders = (msgspec.json.Decoder(RESPONSE), msgspec.json.Decoder(ANY_RESPONSE))
"""Without and with fields that are not known."""


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A body, and what was read of it."""

    body: ResponseBody
    generation: GenerationRequest
    tools: ResponseTools
    items: Sequence[int]
    """How many items each message of the prompt is, with those that the input continues."""
    seal: ItemSeal | None = None
    """With which reasoning is returned sealed; None: it is not."""
    note: SummaryNote = NO_SUMMARY
    """What a summary stands for in the prompt."""


def read_response(data: bytes, *, unknown: bool = False) -> ResponseBody:
    """Decode the body of a response.

    Args:
        data: the body.
        unknown: whether fields that are not known are ignored.

    Raises:
        BatonError: it is no JSON, a type is wrong, a field is not known or not supported, or
            metadata is beyond its limits.
    """
    body: ResponseBody = decode_body(_decoders[unknown], data)
    refuse_unsupported(body, _REFUSED)
    if body.truncation not in (None, *_TRUNCATIONS):
        raise invalid_field("truncation", f"must be {' or '.join(_TRUNCATIONS)}")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise unsupported("text.verbosity", why="ask for it in a message")
    if body.reasoning is not None:
        _check_reasoning(body.reasoning)
    if body.window_seconds and not body.background:
        raise invalid_field(
            "background_options.completion_window",
            "is for responses in the background: set `background`, or use `service_tier` `flex`",
        )
    check_metadata(body.metadata)
    threshold_of(body.context_management)
    return body


def response_request(
    body: ResponseBody,
    called: RequestNames,
    max_messages: int,
    seal: ItemSeal | None = None,
    before: Sequence[Mapping[str, Any]] = (),
) -> ResponseRequest:
    """Return the request of a response, unchecked.

    Args:
        body: what was sent.
        called: the names of the request.
        max_messages: the most items.
        seal: of the tenant's reasoning; None: nothing is sealed.
        before: items that it continues.

    Raises:
        BatonError: as of the passes.
    """
    tools = read_tools(
        body.tools or (), body.tool_choice, parallel=body.parallel_tool_calls is not False
    )
    template = template_options(
        add_generation_prompt=None,
        continue_final_message=False,
        chat_template_kwargs=body.chat_template_kwargs,
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        tools=() if tools.use is None else [tool.definition for tool in tools.use.tools],
    )
    read = messages_of(body.input, body.instructions, max_messages, seal, before)
    logprobs = body.top_logprobs
    if logprobs is None and LOGPROBS in (body.include or ()):
        logprobs = 0
    shared = {
        each.name: getattr(body, each.name) for each in PARAMETERS if each.name not in OTHER_SHAPE
    }
    given = parameters(
        ChatBody(**shared, stop=body.stop, baton=body.baton),
        _form(body),
        _NAMES,
        logprobs=logprobs,
        max_tokens=body.max_output_tokens,
    )
    compacts = threshold_of(body.context_management) is not None
    given["prompt_options"] = PromptOptions(drop_turns=body.truncation == AUTO, compacts=compacts)
    generation = GenerationRequest(
        model=body.model or "",
        prompt=ChatPrompt(read.messages, template, "input", read.summaries),
        **given,
        tools=tools.use,
        request_id=called.request_id,
        execution_id=called.execution_id,
        tenant=body.tenant or "",
        priority=class_of(body.tier),
        ttft_target_seconds=body.ttft_target_seconds or 0.0,
        timeout_seconds=body.timeout_seconds or 0.0,
    )
    sealed = seal if INCLUDE in (body.include or ()) else None
    return ResponseRequest(body, generation, tools, read.items, sealed)


def _check_reasoning(reasoning: ReasoningConfig) -> None:
    if reasoning.context not in (None, "auto"):
        why = "the chat template decides which reasoning a model sees; omit it"
        raise unsupported("reasoning.context", why=why)
    if reasoning.mode not in (None, "standard"):
        raise unsupported("reasoning.mode", why="there is one; omit it")


def _form(body: ResponseBody) -> Form:
    asked: dict[str, Any] = {}
    if body.text is not None and body.text.format is not None:
        asked = body.text.format
    match asked.get("type", "text"):
        case "text":
            return Form()
        case "json_object":
            return Form("text.format", JSON_OBJECT)
        case "json_schema":
            strict = asked.get("strict")
            if strict is not None and not isinstance(strict, bool):
                raise invalid_field("text.format.strict", "must be true or false")
            field = "text.format.schema"
            return Form(field, form_of(field, "json", asked.get("schema")), bool(strict))
        case str() as kind:
            raise unsupported("text.format.type", why=f"{kind[:64]!r}; use {_FORMATS}")
    raise invalid_field("text.format.type", f"must be {_FORMATS}")
