"""Calls as the published chat templates of each family write them, and as its models vary them."""

import json

import pytest

from tests.unit.frontend.output.test_transcripts import READERS, as_tokens, calls, content, read

TIME, CITY = ("get_time", "{}"), ("get_weather", '{"city": "x"}')
FORMS = [
    # Qwen 2.5 and 3: a line break before each call, an empty thought, more members, another order.
    (
        "hermes",
        'So.\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "x"}}\n</tool_call>',
        [TIME, CITY],
        "So.",
    ),
    (
        "hermes",
        "<think>\n\n</think>\n\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "x"}}\n</tool_call>',
        [CITY],
        "",
    ),
    (
        "hermes",
        '<tool_call>\n{"arguments": {"city": "x"}, "name": "get_weather", "id": 1}\n</tool_call>',
        [CITY],
        "",
    ),
    # Llama 3.1: one object; its models add a type, the tag, or semicolons between objects.
    ("llama3", '{"name": "get_weather", "parameters": {"city": "x"}}', [CITY], ""),
    (
        "llama3",
        '\n\n{"type": "function", "name": "get_weather", "parameters": {"city": "x"}}',
        [CITY],
        "",
    ),
    ("llama3", '<|python_tag|>{"name": "get_time", "parameters": {}}', [TIME], ""),
    (
        "llama3",
        '{"name": "get_time", "parameters": {}}; '
        '{"name": "get_weather", "parameters": {"city": "x"}}',
        [TIME, CITY],
        "",
    ),
    # A tool that is built into the model, and not one of the request's.
    ("llama3", '<|python_tag|>search.call(query="x")', [], 'search.call(query="x")'),
    # Mistral v3: with a space behind the tag, ids behind the arguments; v11 and later: no list.
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "x"}, "id": "abcdefghi"}]',
        [CITY],
        "",
    ),
    (
        "mistral",
        'So.[TOOL_CALLS][{"name": "get_time", "arguments": {}}, '
        '{"name": "get_weather", "arguments": {"city": "x"}, "id": "abcdefghi"}]',
        [TIME, CITY],
        "So.",
    ),
    (
        "mistral_args",
        '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "x"}[TOOL_CALLS]get_time[ARGS]{}',
        [CITY, TIME],
        "",
    ),
    ("mistral_args", '[TOOL_CALLS]get_weather{"city": "x"}', [CITY], ""),
    (
        "qwen3_coder",
        "So.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
        [CITY, TIME],
        "So.",
    ),
]


@pytest.mark.parametrize(("family", "text", "expected", "said"), FORMS)
def test_a_published_form_is_read(
    family: str, text: str, expected: list[tuple[str, str]], said: str
) -> None:
    reader = READERS[family]
    whole = as_tokens(reader, text)
    for pieces in ([whole], list(whole)):
        parts = read(reader, family, pieces)
        found = [(name, json.loads(arguments)) for name, arguments in calls(parts)]
        assert found == [(name, json.loads(arguments)) for name, arguments in expected]
        assert content(parts) == said
