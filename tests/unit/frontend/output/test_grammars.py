"""Grammars of answers: they let through what the lexer reads, and nothing else where calls are."""

from typing import Any

import pytest
import tokenizers

from baton.request.grammar import Grammar
from baton.structured.compile import compile_grammar
from baton.structured.json_schema.bounds import Bounds
from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.output.formats import THINK, THINK_END, answer_format
from services.frontend.output.grammar import AnswerGrammar, arguments_schema, embedded
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level
from tests.unit.frontend.output.test_transcripts import HERE, TRANSCRIPTS, USE


class Family:
    """A model of a family, whose tags are special tokens or text."""

    def __init__(self, template: str, special: tuple[str, ...] = ()) -> None:
        backend = byte_level()
        backend.add_special_tokens([tokenizers.AddedToken(one, special=True) for one in special])
        source = (HERE / "templates" / f"{template}.jinja").read_text()
        self.tokenizer = Tokenizer(backend, ChatTemplate(source))
        self.format = answer_format(self.tokenizer, "auto", "auto")
        end = self.tokenizer.tags["<eos>"]
        data = backend.to_str().encode()
        self.vocabulary = Vocabulary.load(data, backend.get_vocab_size() + 5, [end])

    def writer(self) -> AnswerGrammar:
        markers = self.format.table.markers
        ids = self.tokenizer.tags
        tags = {text: token for text, token in ids.items() if token in markers}
        return AnswerGrammar(tags, Bounds())

    def grammar(self, use: ToolUse, form: Grammar | None = None) -> Grammar:
        assert self.format.family is not None
        assert self.format.family.form is not None
        writer, body = self.writer(), ""
        parts = []
        if self.format.reasoning:
            parts.append(writer.reasoning(THINK, THINK_END, opened=False))
        if form is not None:
            body = writer.form(form)
        if use.calls is not CallMode.NONE:
            tools = use.callable_tools
            schemas = {tool.name: arguments_schema(tool) for tool in tools}
            writer.calls(self.format.family.form, tools, schemas, parallel=use.parallel)
        return writer.write(*parts, writer.answer(self.format.family.form, use.calls, body))

    def takes(self, grammar: Grammar, text: str) -> bool:
        """Return whether a text is a whole answer by a grammar."""
        state = GrammarState(compile_grammar(self.vocabulary, grammar))
        matcher = state.advance(self.tokenizer.encode(text))
        return matcher is not None and bool(matcher.is_accepting())


MARKED = {
    "hermes": (),
    "qwen3_coder": ("<tool_call>", "</tool_call>"),
    "llama3": ("<|python_tag|>",),
    "mistral": ("[TOOL_CALLS]",),
    "mistral_args": ("[TOOL_CALLS]", "[ARGS]"),
}
FAMILIES = {name: Family(name, special) for name, special in MARKED.items()}
FAMILIES["qwen3_coder, text"] = Family("qwen3_coder")


def asked(calls: CallMode, **changed: Any) -> ToolUse:
    return ToolUse(USE.tools, calls, **changed)


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_as_the_family_writes_them_pass(name: str) -> None:
    family, template = FAMILIES[name], name.split(",")[0]
    auto, required = family.grammar(asked(CallMode.AUTO)), family.grammar(asked(CallMode.REQUIRED))
    none = family.grammar(asked(CallMode.NONE))
    for transcript in TRANSCRIPTS:
        text, case = transcript["text"], transcript["case"]
        if transcript["template"] != template:
            continue
        if template == "mistral":  # the id is this server's to draw
            for call in transcript.get("tool_calls", []):
                text = text.replace(f', "id": "{call["id"]}"', "")
        if case == "nested quotes" and name == "qwen3_coder":
            continue  # where a tag is a token, no value has it
        quoted = case == "quoted" and name == "qwen3_coder"  # no tag that is a token is quoted
        called = bool(transcript.get("tool_calls"))
        assert family.takes(auto, text) is not quoted, text
        assert family.takes(required, text) is (called and not transcript["content"]), text
        if template != "llama3":  # whose calls are what any JSON may be
            assert family.takes(none, text) is not (called or quoted), text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call> is a tag"),
        ("hermes", '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": 1}}\n</tool_call>'),
        (
            "hermes",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "x", "no": 1}}\n'
            "</tool_call>",
        ),
        ("mistral", "[TOOL_CALLS] hi"),
        ("llama3", '{"name": "nobody", "parameters": {}}'),
        (
            "qwen3_coder",
            "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n</function>\n"
            "</tool_call>",
        ),
    ],
)
def test_malformed_calls_do_not(name: str, text: str) -> None:
    family = FAMILIES[name]
    assert not family.takes(family.grammar(asked(CallMode.AUTO)), text)


def test_one_call_is_one_call() -> None:
    family = FAMILIES["hermes"]
    (two,) = [
        one["text"]
        for one in TRANSCRIPTS
        if (one["template"], one["case"]) == ("hermes", "two calls")
    ]
    grammar = family.grammar(asked(CallMode.REQUIRED, parallel=False))
    assert not family.takes(grammar, two)
    assert family.takes(grammar, two[: two.index("</tool_call>") + len("</tool_call>")])


def test_only_allowed_tools_are_called() -> None:
    family = FAMILIES["hermes"]
    grammar = family.grammar(asked(CallMode.REQUIRED, allowed=frozenset({"get_weather"})))
    assert not family.takes(grammar, TRANSCRIPTS[0]["text"])


@pytest.mark.parametrize(
    "form",
    [
        Grammar.of("json_schema", '{"type":"object"}'),
        Grammar.of("regex", "[a/b]+"),
        Grammar.of_choices(["a", "b/"]),
    ],
)
def test_a_form_begins_behind_the_reasoning(form: Grammar) -> None:
    family = FAMILIES["hermes"]
    text = '{"a": 1}' if form.kind == "json_schema" else "b/"
    grammar = family.grammar(asked(CallMode.AUTO), form)
    for answer in (text, f"<think>\nHm {{\n</think>\n\n{text}", TRANSCRIPTS[0]["text"]):
        assert family.takes(grammar, answer), answer
    assert not family.takes(grammar, "words")
    assert not family.takes(grammar, "<think>\nHm\n</think>\n\nwords")


def test_what_limits_nothing_is_left_out_of_schemas() -> None:
    schema = {
        "type": "object",
        "title": "T",
        "properties": {
            "description": {"type": "string", "description": "{99999} & & & & &"},
            "e": {"enum": ["R&D"]},
        },
    }
    text = embedded(schema, Bounds())
    assert "99999" not in text
    assert "&" not in text
    assert '"description": {"type": "string"}' in text
    assert arguments_schema(ToolDefinition("f", {}))["additionalProperties"] is False
