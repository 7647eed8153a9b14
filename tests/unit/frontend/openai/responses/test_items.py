"""Items of an input are messages of a conversation; what is malformed is refused by its field."""

import json
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.request.grammar import Grammar
from baton.settings import FrontendLimits
from baton.tenancy.directory.principal import LOCAL
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.parse import (
    ResponseRequest,
    read_response,
    response_request,
)
from services.frontend.output.definitions import CallMode
from services.frontend.requests.request import ChatPrompt
from services.frontend.requests.validation.validate import check
from services.frontend.text.chat_template import ChatMessage, ChatToolCall

PICTURE = "data:image/png;base64,AAAA"
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "web", "description": "d", "tools": [LOOK]}


def asked(given: Any = "hi", max_messages: int = 100, **fields: Any) -> ResponseRequest:
    """Return the checked request of a response's body."""
    body = read_response(json.dumps({"model": "m", "input": given, **fields}).encode())
    request = response_request(body, RequestNames("r"), max_messages)
    check(request.generation, FrontendLimits(), LOCAL)
    return request


def messages(given: Any, **fields: Any) -> list[ChatMessage]:
    prompt = asked(given, **fields).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.field == "input"
    return list(prompt.messages)


def test_a_text_is_a_message_of_the_user() -> None:
    assert messages("hi") == [ChatMessage("user", "hi")]
    assert messages("hi", instructions="be kind") == [
        ChatMessage("system", "be kind"),
        ChatMessage("user", "hi"),
    ]


def test_what_the_assistant_did_in_a_row_is_one_message() -> None:
    thought: Any = {
        "type": "reasoning",
        "id": "rs",
        "summary": [],
        "content": [part("reasoning_text")],
    }
    said: Any = {"type": "message", "role": "assistant", "status": "completed", "id": "msg"}
    said |= {"content": [{**part("output_text", "I look"), "annotations": [], "logprobs": None}]}
    found = messages(
        [
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [part("input_text", "a"), part("input_text", "b")]},
            thought,
            said,
            CALL,
            {**CALL, "call_id": "c2", "namespace": "web", "status": "completed"},
            {**OUTPUT, "call_id": "c2", "output": [part("input_text", "rain")]},
            OUTPUT,
            said,
            said,
            thought,
            {"role": "user", "content": "and now?"},
        ]
    )
    calls = [
        ChatToolCall("c1", "look", '{"at": 1}'),
        ChatToolCall("c2", "web.look", '{"at": 1}'),
    ]
    assert found == [
        ChatMessage("developer", "be kind"),
        ChatMessage("user", "ab"),
        ChatMessage("assistant", "I look", tool_calls=calls, reasoning="x"),
        ChatMessage("tool", "rain", tool_call_id="c2"),
        ChatMessage("tool", "sunny", tool_call_id="c1"),
        ChatMessage("assistant", "I look", tool_calls=[]),
        ChatMessage("assistant", "I look", tool_calls=[]),
        ChatMessage("assistant", "", tool_calls=[], reasoning="x"),
        ChatMessage("user", "and now?"),
    ]


def part(kind: str, text: str = "x") -> dict[str, Any]:
    return {"type": kind, "text": text}


def user(*content: Any) -> list[Any]:
    return [{"role": "user", "content": list(content)}]


REFUSED: list[tuple[Any, str, str]] = [
    ("", "input", "at least one item"),
    ([], "input", "at least one item"),
    (["hi"], "input[0]", "an object with a type"),
    ([{"type": 7}], "input[0].type", "must be message"),
    ([{"type": "computer_call"}], "input[0].type", "'computer_call'"),
    ([{"type": "item_reference", "id": "x"}], "input[0].type", "send the item itself"),
    ([{"role": "tool", "content": "x"}], "input[0].role", "must be user"),
    ([{"role": "user"}], "input[0].content", "must be a text, or a list of parts"),
    (user({"type": "input_text", "text": 7}), "input[0].content[0].text", "must be a text"),
    (user({"type": "input_file"}), "input[0].content[0].type", "'input_file' is not supported"),
    (user("bare"), "input[0].content[0].type", "is not supported"),
    (
        user({"type": "input_image", "file_id": "f"}),
        "input[0].content[0].file_id",
        "no files are stored",
    ),
    (
        user({"type": "input_image", "image_url": PICTURE, "detail": "high"}),
        "input[0].content[0].detail",
        "omit it",
    ),
    (
        user({"type": "input_image", "image_url": "https://a/b.png"}),
        "input[0].content[0].image_url",
        "https: URLs are not supported",
    ),
    (
        [
            {
                "role": "assistant",
                "content": [{"type": "input_image", "image_url": PICTURE}],
            }
        ],
        "input[0].content",
        "only messages of users",
    ),
    ([{**CALL, "name": ""}], "input[0].name", "1 to 256"),
    ([{**CALL, "name": "n" * 257}], "input[0].name", "1 to 256"),
    ([{**CALL, "arguments": {}}], "input[0].arguments", "JSON as a text"),
    ([{**CALL, "call_id": None}], "input[0].call_id", "the id of the call"),
    ([{**CALL, "namespace": 1}], "input[0].namespace", "must be a text"),
    ([OUTPUT], "input[0].call_id", "no call before it"),
    ([CALL, OUTPUT, OUTPUT], "input[2].call_id", "answered already"),
    ([{"type": "reasoning", "content": "x"}], "input[0].content", "a list of parts"),
    ([{"type": "reasoning", "content": [7]}], "input[0].content[0].text", "must be a text"),
]


@pytest.mark.parametrize(("given", "field", "what"), REFUSED)
def test_malformed_input_is_refused_by_its_field(given: Any, field: str, what: str) -> None:
    with pytest.raises(BatonError) as caught:
        asked(given)
    assert (caught.value.field, what in caught.value.message) == (field, True), caught.value.message
    assert caught.value.http_status == 400


def test_items_are_counted() -> None:
    with pytest.raises(BatonError) as caught:
        asked([{"role": "user", "content": "x"}] * 2, 2, instructions="be kind")
    assert caught.value.field == "input"
    asked([{"role": "user", "content": "x"}] * 2, 2)


def test_functions_in_namespaces_have_both_names() -> None:
    tools = asked(tools=[{"type": "web_search"}, LOOK, SPACE, {"type": "web_search"}]).tools
    assert tools.use is not None
    assert [tool.name for tool in tools.use.tools] == ["look", "web.look"]
    assert tools.names == {"web.look": ("web", "look")}
    assert tools.left_out == ("web_search",)
    assert [tools.use.field_of(at) for at in range(2)] == ["tools[1]", "tools[2].tools[0]"]
    shown = {"name": "look", "parameters": {"type": "object"}}
    assert tools.use.tools[0].definition == {"type": "function", "function": shown}


@pytest.mark.parametrize(
    ("choice", "calls", "allowed", "parallel"),
    [
        (None, CallMode.AUTO, None, True),
        ("none", CallMode.NONE, None, True),
        ("required", CallMode.REQUIRED, None, True),
        ({"type": "function", "name": "look"}, CallMode.REQUIRED, {"look"}, False),
        (
            {"type": "function", "name": "look", "namespace": "web"},
            CallMode.REQUIRED,
            {"web.look"},
            False,
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "look"}, {"type": "web_search"}],
            },
            CallMode.AUTO,
            {"look"},
            True,
        ),
    ],
)
def test_choices(choice: Any, calls: CallMode, allowed: Any, parallel: bool) -> None:
    use = asked(tools=[LOOK, SPACE], tool_choice=choice).tools.use
    assert use is not None
    assert (use.calls, use.allowed, use.parallel) == (calls, allowed, parallel)


def test_custom_tools_and_their_calls() -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    custom: dict[str, Any] = {
        "type": "custom",
        "name": "edit",
        "description": "Edit",
        "format": grammar,
    }
    space = {**SPACE, "tools": [custom, {"type": "custom", "name": "note"}]}
    choice = {"type": "custom", "name": "edit"}
    found = asked(tools=[custom, space, {"type": "mcp"}], tool_choice=choice).tools
    assert found.use is not None
    assert found.custom == {"edit", "web.edit", "web.note"}
    assert found.names == {"web.edit": ("web", "edit"), "web.note": ("web", "note")}
    assert found.left_out == ("mcp",)
    assert found.use.allowed == frozenset({"edit"})
    edit, inner, note = (tool.text for tool in found.use.tools)
    assert edit is not None
    assert inner is not None
    assert note is not None
    assert (edit.form, edit.field) == (Grammar.of("regex", "a+"), "tools[0].format.definition")
    assert (inner.field, note.form) == ("tools[1].tools[0].format.definition", None)
    call = {"type": "custom_tool_call", "id": "ctc", "call_id": "c", "name": "edit", "input": 'é"'}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}
    assert messages([{"role": "user", "content": "hi"}, call, output])[1:] == [
        ChatMessage("assistant", "", tool_calls=[ChatToolCall("c", "edit", '{"input": "é\\""}')]),
        ChatMessage("tool", "done", tool_call_id="c"),
    ]


CUSTOM: dict[str, Any] = {"type": "custom", "name": "edit"}
BAD_TOOLS: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": [{"type": "custom"}]}, "tools[0]", "an object with a name"),
    ({"tools": [CUSTOM | {"description": 7}]}, "tools[0].description", "must be a text"),
    ({"tools": [CUSTOM | {"format": {"type": "xml"}}]}, "tools[0].format.type", "text or grammar"),
    (
        {"tools": [CUSTOM | {"format": {"type": "grammar", "syntax": "gbnf"}}]},
        "tools[0].format.syntax",
        "lark or regex",
    ),
    (
        {"tools": [CUSTOM | {"format": {"type": "grammar", "syntax": "lark", "definition": ""}}]},
        "tools[0].format.definition",
        "is empty",
    ),
    ({"tools": [CUSTOM], "tool_choice": {"type": "custom"}}, "tool_choice.name", "must be"),
    ({"tools": [LOOK], "tool_choice": 7}, "tool_choice", "must be none"),
    ({"tools": [LOOK], "tool_choice": {"type": "mcp"}}, "tool_choice.type", "'mcp'"),
    ({"tools": [LOOK], "tool_choice": {"type": "function"}}, "tool_choice.name", "must be"),
    (
        {"tools": [LOOK], "tool_choice": {"type": "function", "name": "no"}},
        "tool_choice",
        "'no' is not one",
    ),
    ({"tools": [{"type": "mcp"}], "tool_choice": "required"}, "tool_choice", "mcp cannot run"),
    ({"tool_choice": "required"}, "tool_choice", "no functions"),
    ({"tools": [LOOK, LOOK]}, "tools[1].name", "already the name"),
    ({"tools": [{"type": "mcp"}, {**LOOK, "name": "a b"}]}, "tools[1].name", "1 to 64"),
    ({"tools": [{**LOOK, "parameters": 7}]}, "tools[0].parameters", "JSON Schema"),
    ({"tools": [{**LOOK, "strict": 7}]}, "tools[0].strict", "true or false"),
    ({"tools": [{"name": "x"}]}, "tools[0]", "an object with a type"),
    ({"tools": [{**SPACE, "tools": 7}]}, "tools[0].tools", "a list of tools"),
    ({"tools": [{**SPACE, "name": ""}]}, "tools[0].name", "the namespace's name"),
    ({"tools": [{**SPACE, "tools": [LOOK] * 129}]}, "tools", "129"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "'xml'"),
    ({"text": {"format": {"type": 7}}}, "text.format.type", "must be text"),
    (
        {"text": {"format": {"type": "json_schema", "schema": 7}}},
        "text.format.schema",
        "wrong type",
    ),
    (
        {"text": {"format": {"type": "json_schema", "schema": {}, "strict": 7}}},
        "text.format.strict",
        "true or false",
    ),
    ({"text": {"verbosity": "low"}}, "text.verbosity", "ask for it"),
    ({"max_output_tokens": -1}, "max_output_tokens", "out of range"),
    ({"top_logprobs": 99}, "top_logprobs", "out of range"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "17 keys"),
    ({"metadata": {"k": "v" * 513}}, "metadata", "512"),
]


@pytest.mark.parametrize(("fields", "field", "what"), BAD_TOOLS)
def test_malformed_fields_are_refused_by_name(
    fields: dict[str, Any], field: str, what: str
) -> None:
    with pytest.raises(BatonError) as caught:
        asked(**fields)
    assert (caught.value.field, what in caught.value.message) == (field, True), caught.value.message
    assert caught.value.reason in (Reason.INVALID_FIELD, Reason.UNSUPPORTED_PARAMETER)
