"""The input of a custom tool: read from JSON in pieces, and held to its grammar."""

import json
import random
import re
from typing import Any

import pytest

from baton.errors import BatonError
from baton.request.grammar import Grammar
from baton.structured.compile import compile_grammar
from baton.structured.state import GrammarState
from services.frontend.output.custom.function import text_tool
from services.frontend.output.custom.json_lark import json_lark
from services.frontend.output.custom.json_regex import json_regex, unanchored
from services.frontend.output.custom.reader import InputReader
from services.frontend.output.definitions import CallMode, TextInput, ToolUse
from tests.unit.frontend.output.test_grammars import FAMILIES

EDIT = """
start: head change+ tail
head: "<<< edit " /[^\\n]+/ LF          // the file
change: ("+" | "-" | " ") /(.*)/ LF -> line
tail: ">>> end" LF?
%import common.LF
"""
"""As a client's tool for patches has it."""
PATCH = '<<< edit a "b"\\c.py\n+print("é\\n")\n-\told\n \n>>> end'
SUM = """
start: sum
sum: part (" + " part)*
part: /[0-9]{1,3}/ | "(" sum ")" | NAME
NAME: "\\"" /[^"]*/ "\\""
"""
LARK = [
    (EDIT, [PATCH, PATCH + "\n"], [PATCH[3:], PATCH.replace("\n+", "\n*"), PATCH + "\n\n", ""]),
    (SUM, ["1 + (2 + 33)", '"a\n\\" + 1'], ["1 +", "1 + (2", '"a']),
]
CALLS = {
    "hermes": '<tool_call>\n{"name": "edit", "arguments": %s}\n</tool_call>',
    "mistral": '[TOOL_CALLS] [{"name": "edit", "arguments": %s}]',
    "mistral_args": "[TOOL_CALLS]edit[ARGS]%s",
    "llama3": '{"name": "edit", "parameters": %s}',
}
XML = "<tool_call>\n<function=edit>\n<parameter=input>\n%s\n</parameter>\n</function>\n</tool_call>"
CHARACTERS = 'ab"\\\n\té🤖\x01/12- xAB'


def edit(kind: str, form: str) -> ToolUse:
    given = TextInput(Grammar.of(kind, form), "tools[0].format.definition")
    return ToolUse((text_tool("edit", "", given),), CallMode.REQUIRED)


def call(name: str, text: str) -> str:
    if name not in CALLS:
        return XML % text
    return CALLS[name] % json.dumps({"input": text}, ensure_ascii=False)


@pytest.mark.parametrize("name", [*CALLS, "qwen3_coder", "qwen3_coder, text"])
@pytest.mark.parametrize(("form", "good", "bad"), LARK)
def test_calls_are_held_to_a_lark_grammar(
    name: str, form: str, good: list[str], bad: list[str]
) -> None:
    family = FAMILIES[name]
    grammar = family.grammar(edit("lark", form))
    for text in good:
        assert family.takes(grammar, call(name, text)), text
    for text in bad:
        assert not family.takes(grammar, call(name, text)), text


@pytest.mark.parametrize("name", [*CALLS, "qwen3_coder"])
def test_calls_are_held_to_a_regular_expression(name: str) -> None:
    family = FAMILIES[name]
    grammar = family.grammar(edit("regex", unanchored(r"^\d{4}-\d\d/[^/\s]+$")))
    assert family.takes(grammar, call(name, '2026-11/"\\'))
    assert not family.takes(grammar, call(name, "2026-11/a b"))
    assert not family.takes(grammar, call(name, "2026-11"))


@pytest.mark.parametrize(
    ("pattern", "example"),
    [
        (r"(.+)", 'a"'),
        (r"(?s:.*)", "a\n"),
        (r'[^"]*', "a\t\\"),
        (r"[\w\s]+", "a b\n"),
        (r"\d{2,4}-x?", "12-"),
        (r'a|"b"|\\n|\n+', '"b"'),
        (r"[/\]a-c\\]*", "\\/]"),
        (r"(?i:ab[^\n]*)", 'aB"'),
        (r"\x41?\u0042[\x00-\x2f]+", 'B\x01"'),
        (r"\S+\s\S*", '"\n"'),
        (r"(?P<one>é|🤖)*.", "é🤖\\"),
        (r"\/\.\*", "/.*"),
    ],
)
def test_an_expression_matches_what_it_matched_before_escaping(pattern: str, example: str) -> None:
    family, rng = FAMILIES["hermes"], random.Random(pattern)
    escaped_by = Grammar.of("regex", f'(?:{json_regex(pattern)})"')
    compiled = compile_grammar(family.vocabulary, escaped_by)
    expected = re.compile(pattern)
    assert expected.fullmatch(example)
    for text in [example, *("".join(rng.choices(CHARACTERS, k=at % 6)) for at in range(40))]:
        escaped = json.dumps(text, ensure_ascii=False)[1:]
        matcher = GrammarState(compiled).advance(family.tokenizer.encode(escaped))
        found = matcher is not None and bool(matcher.is_accepting())
        assert found is (expected.fullmatch(text) is not None), text


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("start: %json {}", "%json is not supported"),
        ("start: ~/a/", "~ is not supported"),
        ('start: "a" & "b"', "& is not supported"),
        ("start: <|end|>", "<|end|> is not supported"),
        ('%ignore " "\nstart: "a"', "%ignore is not supported"),
        ("start: a", "a is not defined"),
        ("start: X\n%import common.XYZ -> X", "common.XYZ"),
        ("start: /a(?=b)/", "'(?=b' is not supported"),
        ("start: /a$b/", "$ is not supported"),
        ("start: /[[:alpha:]]/", "sets within sets"),
        (r"start: /\p{L}/", r"\p is not supported"),
        ("start: /a/x", "only i and s"),
        ('start: "ab".."c"', "a range of two characters"),
        ('start: /[^q]*/ LF | "(" start ")"\nLF: "\\n"', "refer to themselves"),
    ],
)
def test_what_cannot_be_held_to_is_refused_by_name(form: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        json_lark(form, "x")
    with pytest.raises(BatonError) as caught:
        FAMILIES["hermes"].grammar(edit("lark", form))
    assert caught.value.field == "tools[0].format.definition"


def test_an_input_is_read_alike_in_any_pieces() -> None:
    rng = random.Random(1)
    for _ in range(500):
        text = "".join(rng.choices(CHARACTERS, k=rng.randrange(12)))
        assert read(json.dumps({"input": text}, ensure_ascii=rng.random() < 0.5), rng) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (r'{"input": "a\x"}', r"a\x"),
        (r'{"input": "a\uZZ"}', r"a\uZZ"),
        (r'{"input": "\ud83d"}', "\ufffd"),
        (r'{"input": "abc\u00', "abc"),
        (r'{"input": "abc', "abc"),
        ('{"x": 1, "input": "q"}', "q"),
        ('{"input": 3}', '{"input": 3}'),
        ("ls -l", "ls -l"),
        ("", ""),
    ],
)
def test_arguments_of_another_form_are_the_input(arguments: str, text: str) -> None:
    assert read(arguments, random.Random(2)) == text


def read(arguments: str, rng: random.Random) -> str:
    reader, found, at = InputReader(), "", 0
    while at < len(arguments):
        end = at + rng.randrange(1, 6)
        found += reader.push(arguments[at:end])
        at = end
    return found + reader.end()


def test_the_model_is_told_the_grammar() -> None:
    shown: Any = edit("lark", EDIT).tools[0].definition["function"]
    assert EDIT in shown["description"]
    assert shown["parameters"]["required"] == ["input"]
    assert "description" not in text_tool("note", "", TextInput()).definition["function"]
