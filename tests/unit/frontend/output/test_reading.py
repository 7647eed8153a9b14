"""What bodies and messages say of tools and forms, and what is refused."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits
from baton.tenancy.directory.principal import LOCAL
from baton.v1 import inference_pb2
from services.frontend.grpc.convert import generation_request
from services.frontend.openai.request.decode import read_chat
from services.frontend.openai.request.parse import RequestNames, chat_request
from services.frontend.output.definitions import CallMode
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.requests.validation.validate import check
from services.frontend.text.call_arguments import read_arguments
from services.frontend.text.chat_template import (
    ChatMessage,
    ChatTemplate,
    ChatToolCall,
    TemplateOptions,
)
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level
from tests.unit.frontend.output.golden import HARD, TOOLS
from tests.unit.frontend.output.test_transcripts import HERE, TRANSCRIPTS

HELLO = [{"role": "user", "content": "hi"}]
FUNCTION = {"type": "function", "function": {"name": "get_time"}}


def asked(**fields: Any) -> GenerationRequest:
    """Return the checked request of a chat completion's body."""
    body = {"model": "m", "messages": HELLO, **fields}
    request = chat_request(read_chat(json.dumps(body).encode()), RequestNames("r"), 100)
    check(request, FrontendLimits(), LOCAL)
    return request


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("choice", "calls", "allowed", "parallel"),
    [
        (None, CallMode.AUTO, None, True),
        ("none", CallMode.NONE, None, True),
        ("required", CallMode.REQUIRED, None, True),
        (FUNCTION, CallMode.REQUIRED, {"get_time"}, False),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}},
            CallMode.AUTO,
            {"get_time"},
            True,
        ),
    ],
)
def test_choices(choice: Any, calls: CallMode, allowed: set[str] | None, parallel: bool) -> None:
    use = asked(tools=TOOLS, tool_choice=choice).tools
    assert use is not None
    assert (use.calls, use.parallel) == (calls, parallel)
    assert (None if use.allowed is None else set(use.allowed)) == allowed


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"tools": [{"type": "web_search"}]}, Reason.UNSUPPORTED_PARAMETER, "tools[0].type"),
        ({"tools": [{"type": "custom"}]}, Reason.INVALID_FIELD, "tools[0].custom"),
        ({"tools": ["f"]}, Reason.INVALID_FIELD, "tools[0].type"),
        ({"tools": [named("a b")]}, Reason.INVALID_FIELD, "tools[0].function.name"),
        ({"tools": [FUNCTION, FUNCTION]}, Reason.INVALID_FIELD, "tools[1].function.name"),
        (
            {"tools": [{"function": {"name": "f", "parameters": {"type": "string"}}}]},
            Reason.INVALID_FIELD,
            "tools[0].function.parameters.type",
        ),
        ({"tools": [FUNCTION] * 129}, Reason.INVALID_FIELD, "tools"),
        ({"tool_choice": "required"}, Reason.INVALID_FIELD, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "any"}, Reason.INVALID_FIELD, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": named("no")}, Reason.INVALID_FIELD, "tool_choice"),
        ({"functions": ["f"]}, Reason.INVALID_FIELD, "functions[0]"),
        ({"functions": [{"name": "a b"}]}, Reason.INVALID_FIELD, "functions[0].name"),
        ({"functions": [{"name": "f"}] * 129}, Reason.INVALID_FIELD, "functions"),
        (
            {"functions": [{"name": "f", "parameters": {"type": "string"}}]},
            Reason.INVALID_FIELD,
            "functions[0].parameters.type",
        ),
        ({"functions": [{"name": "f"}], "tools": TOOLS}, Reason.INVALID_FIELD, "functions"),
        (
            {"functions": [{"name": "f"}], "function_call": {"name": "no"}},
            Reason.INVALID_FIELD,
            "function_call",
        ),
        (
            {"functions": [{"name": "f"}], "function_call": "required"},
            Reason.INVALID_FIELD,
            "function_call",
        ),
        (
            {"functions": [{"name": "f"}], "tool_choice": "required"},
            Reason.INVALID_FIELD,
            "tool_choice",
        ),
        ({"function_call": {"name": "f"}}, Reason.INVALID_FIELD, "function_call"),
        (
            {"response_format": {"type": "xml"}},
            Reason.UNSUPPORTED_PARAMETER,
            "response_format.type",
        ),
        ({"structured_outputs": {}}, Reason.INVALID_FIELD, "structured_outputs"),
        ({"guided_choice": ["a"], "guided_regex": "a"}, Reason.INVALID_FIELD, "guided_choice"),
        ({"guided_grammar": 'root ::= "a"'}, Reason.UNSUPPORTED_PARAMETER, "guided_grammar"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], reason: Reason, field: str) -> None:
    with pytest.raises(BatonError) as caught:
        asked(**fields)
    assert (caught.value.reason, caught.value.field) == (reason, field)


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema", '{"type":"object"}'),
        ({"guided_json": {"type": "integer"}}, "json_schema", '{"type":"integer"}'),
        ({"guided_json": '{"type": "integer"}'}, "json_schema", '{"type": "integer"}'),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"structured_outputs": {"json": None, "choice": ["a", "b"]}}, "choice", '["a","b"]'),
        ({"guided_grammar": 'start: "a"'}, "lark", 'start: "a"'),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "strict": True, "schema": {"b": 1, "a": 2}},
                }
            },
            "json_schema",
            '{"b":1,"a":2}',
        ),
    ],
)
def test_forms(fields: dict[str, Any], kind: str, text: str) -> None:
    request = asked(**fields)
    grammar = request.sampling.grammar
    assert grammar is not None
    assert (grammar.kind, grammar.text) == (kind, text)
    assert request.names["grammar"] == next(iter(fields))


def test_grpc_asks_for_the_same() -> None:
    function = TOOLS[0]["function"]
    message = inference_pb2.ChatRequest(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}]},
            {"role": "tool", "content": "x", "tool_call_id": "1"},
        ],
        tools=[
            {
                "name": function["name"],
                "description": function["description"],
                "parameters": json.dumps(function["parameters"]),
                "strict": True,
            }
        ],
        tool_choice={"mode": inference_pb2.TOOL_CHOICE_MODE_REQUIRED},
        parallel_tool_calls=False,
    )
    message.context.model = "m"
    over_grpc = generation_request(message, RequestNames("r"), 100)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    over_http = asked(
        messages=[
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "1"},
        ],
        tools=[{**TOOLS[0], "function": {**function, "strict": True}}],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    assert (over_grpc.tools, over_grpc.prompt) == (over_http.tools, over_http.prompt)


def test_the_template_gets_the_tools_that_may_be_called() -> None:
    tools = [{"name": "f", "parameters": '{"type": "object"}'}]
    message = inference_pb2.ChatRequest(messages=HELLO, tools=tools)
    over_grpc = generation_request(message, "r", 100)
    over_http = asked(tools=[TOOLS[0]])
    for request in (over_grpc, over_http):
        assert isinstance(request.prompt, ChatPrompt)
        assert request.tools is not None
        (shown,), (called,) = request.prompt.options.tools, request.tools.tools
        assert shown is called.definition, "tools are read once"


@pytest.mark.parametrize("transcript", [one for one in TRANSCRIPTS if one["template"] == "hermes"])
def test_a_conversation_with_calls_is_rendered_as_transformers_does(
    transcript: dict[str, Any],
) -> None:
    calls = [
        ChatToolCall(
            one["id"],
            one["function"]["name"],
            json.dumps(one["function"]["arguments"], ensure_ascii=False),
        )
        for one in transcript.get("tool_calls", [])
    ]
    template = ChatTemplate((HERE / "templates" / "hermes.jinja").read_text())
    messages = [
        ChatMessage("user", "Which tool is it?"),
        ChatMessage(
            "assistant",
            transcript["content"],
            tool_calls=calls,
            reasoning=transcript.get("reasoning_content", ""),
        ),
    ]
    text = template.render(messages, TemplateOptions(add_generation_prompt=False, tools=TOOLS))
    assert text == transcript["prompt"] + transcript["text"] + "<|im_end|>\n"


CUT = ['{"a": "32', '{"a":1,}', '"{}"', "null", "[]", '{"a":1}{"b":2}', "sunny", "[" * 100_000]
"""Arguments that are no object: `max_tokens` cut them, or a client wrote them."""


@pytest.mark.parametrize(
    "written", ['{"a":1}', '{ "a" : 1 }', '{"a": "\\u00e9"}', "", json.dumps(HARD), *CUT]
)
@pytest.mark.parametrize(
    ("source", "around"),
    [
        ("{{ arguments | tojson }}", "%s"),  # Qwen 2.5, Llama 3
        ("{{ arguments if arguments is string else arguments | tojson }}", "%s"),  # Qwen 3
        ("{{ arguments }}", "%s"),
        ("{{ '```json\n' + arguments + '\n```' }}", "```json\n%s\n```"),  # DeepSeek
        ("{{ '<' ~ arguments ~ '>' }}", "<%s>"),
        ("{{ [message.tool_calls[0].function] | tojson }}", '[{"name": "f", "arguments": %s}]'),
    ],
)
def test_arguments_stand_in_the_prompt_as_they_were_written(
    source: str, around: str, written: str
) -> None:
    message = ChatMessage("assistant", "", tool_calls=[ChatToolCall("1", "f", written)])
    names = "{% set message = messages[0] %}"
    names += "{% set arguments = message.tool_calls[0].function.arguments %}"
    template = ChatTemplate(names + source)
    assert template.render([message]) == around.replace("%s", written or "{}")
    tokenizer = Tokenizer(byte_level(), template)  # which marks special tokens
    assert tokenizer.decode(tokenizer.encode_chat([message])) == template.render([message])


def test_arguments_are_laid_out_on_lines_where_they_are_whole() -> None:
    template = ChatTemplate("{{ messages[0].tool_calls[0].function | tojson(indent=1) }}")
    for written, shown in (('{"a":1}', '{\n  "a": 1\n }'), ('{"a":', '{"a":')):
        message = ChatMessage("assistant", "", tool_calls=[ChatToolCall("1", "f", written)])
        assert template.render([message]) == f'{{\n "name": "f",\n "arguments": {shown}\n}}'


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"city": "Par', {"city": "Par"}),
        ('{"city": "Par\\', {"city": "Par"}),
        ('{"city": "Par\\u00', {"city": "Par"}),
        ('{"city": "a\\"b", "days', {"city": 'a"b'}),
        ('{"city": "x", "days": ', {"city": "x"}),
        ('{"a": {"b": [1, {"c": 2', {"a": {"b": [1, {"c": 2}]}}),
        ('{"a": [1, 2], "b": tr', {"a": [1, 2]}),
        ('{"a":1,}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": 1}}', {}),
        ("{" * 200, {}),
        ('{"a":' * 150 + "1" + "}" * 150, {}),
        ('{"a": "' + "x" * 70_000, {}),
        ("null", {}),
        ("[1]", {}),
    ],
)
def test_members_of_arguments_that_were_cut_are_those_that_are_whole(
    written: str, read: dict[str, Any]
) -> None:
    assert read_arguments(written) == read


@given(
    st.dictionaries(st.text(), st.recursive(st.integers() | st.text(), st.lists), min_size=1),
    st.randoms(),
)
def test_arguments_cut_anywhere_have_members_of_the_whole(
    value: dict[str, Any], draw: random.Random
) -> None:
    text = json.dumps(value, ensure_ascii=False)
    read = read_arguments(text[: draw.randrange(len(text))])
    assert list(read) == list(value)[: len(read)]
    assert all(read[name] == value[name] for name in list(read)[:-1])
    assert read_arguments(text) == value


@pytest.mark.parametrize("hidden", ["<eos>", "\\u003ceos>", "<eo\\u0073>"])
@pytest.mark.parametrize("form", ['{"a": "%s"}', '{"a": "%s', '{"a": "%s", "b', '"%s', "%s"])
def test_special_tokens_in_calls_and_tools_stay_text(hidden: str, form: str) -> None:
    template = (
        "{{ tools | tojson }}{% for k, v in messages[0].tool_calls[0].function.arguments | items %}"
        "{{ v }}{% endfor %}{{ messages[0].tool_calls[0].function.arguments | tojson }}"
        "{{ messages[1].tool_call_id }}<eos>"
    )
    tokenizer = Tokenizer(byte_level(), ChatTemplate(template))
    end = tokenizer.tags["<eos>"]
    messages = [
        ChatMessage("assistant", "", tool_calls=[ChatToolCall("1", "f", form % hidden)]),
        ChatMessage("tool", "x", tool_call_id="<eos>"),
    ]
    ids = tokenizer.encode_chat(messages, options=TemplateOptions(tools=[{"description": "<eos>"}]))
    assert [at for at, token in enumerate(ids) if token == end] == [len(ids) - 1]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_what_is_nested_too_deep_is_refused() -> None:
    deep = nested(500)
    function = {"name": "f", "parameters": deep}
    with pytest.raises(BatonError, match="levels") as caught:
        asked(tools=[{"type": "function", "function": function}])
    assert caught.value.field == "tools[0].function"
    function["parameters"] = nested(90)
    assert asked(tools=[{"type": "function", "function": function}]).tools is not None


@pytest.mark.parametrize(
    ("choice", "calls", "allowed"),
    [
        (None, CallMode.AUTO, None),
        ("none", CallMode.NONE, None),
        ("auto", CallMode.AUTO, None),
        ({"name": "get_time"}, CallMode.REQUIRED, {"get_time"}),
    ],
)
def test_functions_are_tools_of_which_one_is_called(
    choice: Any, calls: CallMode, allowed: set[str] | None
) -> None:
    functions = [tool["function"] for tool in TOOLS]
    request = asked(functions=functions, function_call=choice)
    use, same = request.tools, asked(tools=TOOLS).tools
    assert use is not None
    assert same is not None
    assert use.tools == same.tools
    assert isinstance(request.prompt, ChatPrompt)
    assert request.prompt.options.tools == [tool.definition for tool in same.tools]
    assert (use.calls, use.parallel) == (calls, False)
    assert (None if use.allowed is None else set(use.allowed)) == allowed


def test_functions_beside_tools_are_not_called() -> None:
    use = asked(functions=[{"name": "f"}], function_call="none", tools=TOOLS).tools
    assert use is not None
    assert use == asked(tools=TOOLS).tools


def test_calls_of_functions_in_a_conversation_are_those_of_tools() -> None:
    call = {"name": "get_time", "arguments": '{"zone": "UTC"}'}
    said = [
        *HELLO,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "get_time", "content": "12:00"},
        {"role": "function", "name": "other", "content": "?"},
    ]
    prompt = asked(messages=said).prompt
    assert isinstance(prompt, ChatPrompt)
    _, called, answered, other = prompt.messages
    assert called.tool_calls == [ChatToolCall("000000001", "get_time", '{"zone": "UTC"}')]
    assert (answered.role, answered.name) == ("tool", "get_time")
    assert (answered.content, answered.tool_call_id) == ("12:00", "000000001")
    assert other.tool_call_id == ""
    said[1]["tool_calls"] = [{"id": "x", "function": call}]
    with pytest.raises(BatonError) as caught:
        asked(messages=said)
    assert caught.value.field == "messages[1].function_call"
