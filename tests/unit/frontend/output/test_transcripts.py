"""Answers as the families' models write them, read whole and in pieces.

The transcripts are what transformers renders with the templates beside this file; see golden.py.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    Part,
    Reasoning,
    Text,
)
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.output.formats import FAMILIES, AnswerReader, answer_format
from services.frontend.output.lexer import Lexer, _joined
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.support.examples import examples
from tests.unit.frontend.conftest import byte_level
from tests.unit.frontend.output.golden import TOOLS

HERE = Path(__file__).parent
TRANSCRIPTS = json.loads((HERE / "transcripts.json").read_text())
SPECIAL = {
    "hermes": ["<|im_end|>"],
    "qwen3_coder": ["<tool_call>", "</tool_call>"],
    "llama3": ["<|python_tag|>"],
    "mistral": ["[TOOL_CALLS]"],
    "mistral_args": ["[TOOL_CALLS]", "[ARGS]"],
}
"""What is one token in the vocabulary; everything else is text."""
USE = ToolUse(
    tuple(
        ToolDefinition(tool["function"]["name"], tool, tool["function"].get("parameters"))
        for tool in TOOLS
    )
)


def reader_of(name: str, use: ToolUse = USE, prompt: str = "") -> AnswerReader:
    """Return the reader of a model that has one of the templates."""
    backend = byte_level()
    backend.add_special_tokens([tokenizers.AddedToken(one, special=True) for one in SPECIAL[name]])
    template = (HERE / "templates" / f"{name}.jinja").read_text()
    tokenizer = Tokenizer(backend, ChatTemplate(template))
    found = answer_format(tokenizer, "auto", "auto")
    reader = found.reader(use, tokenizer, tokenizer.encode(prompt), 7, "r")
    assert reader is not None
    return reader


READERS = {name: reader_of(name) for name in SPECIAL}


def read(
    reader: AnswerReader, name: str, pieces: Iterable[str], *, cut: bool = False
) -> list[Part]:
    """Return the parts of an output whose text comes in pieces."""
    lexer, parts = reader.lexer(0), []
    for piece in pieces:
        for one in re.split("([\ud800-\udfff])", piece):
            (lexer.push_marker if one in lexer.markers.values() else lexer.push)(one)
        parts += lexer.take()
    lexer.end(cut=cut)
    return _joined(parts + lexer.take())


def as_tokens(reader: AnswerReader, text: str) -> str:
    """Return a text with markers where the vocabulary has tokens."""
    for marker, spelling in reader.table.spelled.items():
        text = text.replace(spelling, marker)
    return text


def content(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def calls(parts: Sequence[Part]) -> list[tuple[str, str]]:
    names = [part.name for part in parts if isinstance(part, CallBegun)]
    given = [part for part in parts if isinstance(part, CallArguments)]
    assert [part.index for part in parts if isinstance(part, CallBegun)] == list(range(len(names)))
    return [
        (name, "".join(part.text for part in given if part.index == index))
        for index, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    "transcript", TRANSCRIPTS, ids=[f"{one['template']}-{one['case']}" for one in TRANSCRIPTS]
)
def test_a_transcript_is_read_as_it_was_meant(transcript: dict[str, Any]) -> None:
    name, reader = transcript["template"], READERS[transcript["template"]]
    text = as_tokens(reader, transcript["text"])
    if transcript["case"] == "quoted":
        text = transcript["text"]  # what is quoted is not spelled with the token
    parts = read(reader, name, [text])
    asked = transcript.get("tool_calls", [])
    called = calls(parts)
    assert [(name, json.loads(arguments)) for name, arguments in called] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in asked
    ]
    if name != "qwen3_coder":  # which writes no JSON
        assert all(arguments in transcript["text"] for _, arguments in called)
    assert sum(isinstance(part, CallEnded) for part in parts) == len(asked)
    expected = transcript["content"] if asked else transcript["text"]
    assert content(parts) == expected
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    assert reasoning == transcript.get("reasoning_content", "")
    assert read(reader, name, text) == parts  # character by character


PIECES = {
    "hermes": ["<tool_call>", "</tool_call>", "<tool", "</think>", "<think>", "`", "'"],
    "qwen3_coder": [
        *("<tool_call>", "</tool_call>", "<function=get_time>", "<function=get_weather>"),
        *("<parameter=city>", "<parameter=days>", "</parameter>", "</function>", "<para", "`"),
    ],
    "llama3": ["<|python_tag|>", ";", "<|py"],
    "mistral": ["[TOOL_CALLS]", "[", "]", ",", "get_time", "[TOOL"],
    "mistral_args": ["[TOOL_CALLS]", "[ARGS]", "get_time", "get_weather", "[CALL_ID]"],
}
JSON = [
    *('{"name": "get_time", "arguments": {}}', '{"name": "get_weather", "parameters": '),
    *('{"arguments": {"a": 1}, "name": "get_time"}', '{"name": "nobody"', '{"x": 1}'),
    *('{"name"', ': "get_time"', "}", "{", '"', "\\", "\\u00e9", "3", "null", "True", "[1, 2]"),
    *("\n", " ", "words", "世界", '{"type": "function", "name": "get_time"}'),
]


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, str, list[int], bool]:
    """A family, an output made of its markup, right or wrong, where it is cut, and how it ended."""
    name = draw(st.sampled_from(sorted(PIECES)))
    transcript = draw(st.sampled_from([t["text"] for t in TRANSCRIPTS if t["template"] == name]))
    pieces = st.sampled_from([*PIECES[name], *JSON, transcript])
    text = as_tokens(READERS[name], "".join(draw(st.lists(pieces, max_size=8))))
    text = text[: draw(st.integers(0, len(text)))]
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=12))
    return name, text, sorted(cuts), draw(st.booleans())


@settings(max_examples=examples(240), deadline=None)
@given(outputs())
def test_any_cut_gives_the_calls_of_the_whole(case: tuple[str, str, list[int], bool]) -> None:
    name, text, cuts, cut = case
    reader = READERS[name]
    whole = read(reader, name, [text], cut=cut)
    ends = [*cuts, len(text)]
    pieces = [text[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    assert read(reader, name, pieces, cut=cut) == whole
    assert not any("\ud800" <= char <= "\udfff" for char in content(whole))
    begun = sum(isinstance(part, CallBegun) for part in whole)
    ended = sum(isinstance(part, CallEnded) for part in whole)
    assert begun - ended in (0, 1)


@pytest.mark.parametrize("cut", [False, True])
def test_a_call_that_is_cut_off_is_no_text(cut: bool) -> None:
    reader = READERS["hermes"]
    whole = 'Look:\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}'
    name_ends = whole.index('r", "arg') + 2
    arguments_end = len(whole) - 1
    for end in range(len("Look:\n<tool_call>"), len(whole) + 1):
        parts = read(reader, "hermes", [whole[:end]], cut=cut)
        called = calls(parts)
        if end >= name_ends:
            start = whole.index('{"city')
            assert called == [("get_weather", whole[start : min(end, arguments_end)])]
        if end >= name_ends or cut:
            assert content(parts) == "Look:"
        else:
            assert content(parts) == whole[:end]  # the model ended it: it was no call
        assert (CallEnded(0) in parts) == (end == len(whole))


def test_an_unknown_tool_is_text() -> None:
    text = '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>'
    assert read(READERS["hermes"], "hermes", text) == [Text(text)]
    named = ToolUse(USE.tools, CallMode.AUTO, frozenset({"get_time"}))
    text = text.replace("nobody", "get_weather")
    assert read(reader_of("hermes", named), "hermes", text) == [Text(text)]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("3", {"type": "string"}, '"3"'),
        ("3", {"type": "integer"}, "3"),
        ("3.50", {"type": "number"}, "3.50"),
        ("3.5", {"type": "integer"}, '"3.5"'),
        ("True", {"type": "boolean"}, "true"),
        ("None", {"type": ["string", "null"]}, "null"),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("x", {"anyOf": [{"type": "string"}, {"type": "null"}]}, '"x"'),
        ('{"a":  1}', {"$ref": "#/$defs/o"}, '{"a":  1}'),
        ("[1, 2]", {}, "[1, 2]"),
        ("a\n\tb\n", {"enum": ["x"]}, '"a\\n\\tb\\n"'),
        ("1", {"enum": ["x", 1]}, "1"),
        ("1", {"const": "1"}, '"1"'),
        ("", {"type": "string"}, '""'),
    ],
)
def test_values_in_xml_are_of_the_types_of_the_schema(
    value: str, schema: dict[str, Any], expected: str
) -> None:
    parameters = {
        "type": "object",
        "properties": {"p": schema},
        "$defs": {"o": {"type": "object"}},
    }
    reader = reader_of("qwen3_coder", ToolUse((ToolDefinition("f", {}, parameters),)))
    text = f"<function=f>\n<parameter=p>\n{value}\n</parameter>\n</function>"
    for pieces in ([text], list(text)):
        assert calls(read(reader, "qwen3_coder", pieces)) == [("f", f'{{"p": {expected}}}')]


def test_ids_are_those_of_the_request_and_of_no_other() -> None:
    def ids(choice: int, seed: int = 7, name: str = "mistral_args") -> list[str]:
        found = answer_format(tokenizer, name.split("_")[0], "auto")
        reader = found.reader(USE, tokenizer, [1, 2], seed, "r")
        assert reader is not None
        lexer: Lexer = reader.lexer(choice)
        marker = reader.table.markers.get(token or 0, "[TOOL_CALLS]")
        for _ in range(2):
            lexer.push_marker(marker)
            lexer.push("get_time{}")
        return [part.id for part in lexer.take() if isinstance(part, CallBegun)]

    backend = byte_level()
    backend.add_special_tokens(["[TOOL_CALLS]"])
    token = backend.token_to_id("[TOOL_CALLS]")
    tokenizer = Tokenizer(backend, ChatTemplate(""))
    first = ids(0)
    assert first == ids(0)
    assert len({*first, *ids(1), *ids(0, 8)}) == 6
    assert all(len(one) == 9 and one.isalnum() for one in first)


@pytest.mark.parametrize(
    ("prompt", "output", "reasoning", "text"),
    [
        ("", "<think>\nHm.\n</think>\n\nYes", "Hm.", "Yes"),
        ("", "Yes <think>", "", "Yes <think>"),
        ("<think>\n", "Hm.\n</think>\n\nYes", "Hm.", "Yes"),
        ("<think>\n\n</think>\n\n", "Yes", "", "Yes"),
        ("", "<think>\nHm", "Hm", ""),
        ("", " <th", "", " <th"),
    ],
)
def test_reasoning_begins_where_the_prompt_says(
    prompt: str, output: str, reasoning: str, text: str
) -> None:
    reader = reader_of("hermes", USE, f"assistant\n{prompt}")
    output = as_tokens(reader, output)
    for pieces in ([output], list(output)):
        parts = read(reader, "hermes", pieces)
        assert content(parts) == text
        assert "".join(part.text for part in parts if isinstance(part, Reasoning)) == reasoning


def test_without_tools_and_reasoning_nothing_reads_the_answer() -> None:
    tokenizer = Tokenizer(byte_level(), ChatTemplate("{{ messages }}"))
    for name in ("auto", *FAMILIES):
        found = answer_format(tokenizer, name, "auto")
        assert found.reader(None, tokenizer, [1], 1, "r") is None
        assert found.reader(ToolUse(USE.tools, CallMode.NONE), tokenizer, [1], 1, "r") is None
