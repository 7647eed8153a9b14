"""What is decided of a request's answers: their grammar, and what reads them."""

import json
from dataclasses import replace
from typing import Any

import pytest
import tokenizers

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.request.grammar import Grammar
from baton.sampling import SamplingParams
from baton.settings import TextSettings
from services.frontend.generation.resolution.answers import AnswerPlan, Answers
from services.frontend.models.model import ServedModel
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.requests.request import ChatPrompt, GenerationRequest, TextPrompt
from services.frontend.requests.validation.grammar import check_grammar
from services.frontend.text.chat_template import ChatMessage, ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level
from tests.unit.frontend.output.test_transcripts import HERE, USE

DIGITS = Grammar.of("regex", "[0-9]+")
NOT = {"type": "object", "properties": {"a": {"not": {}}}}
CHAT = ChatPrompt([ChatMessage("user", "hi")])


def model(*features: str, template: str = "hermes", source: str = "") -> ServedModel:
    backend = byte_level()
    backend.add_special_tokens([tokenizers.AddedToken("[TOOL_CALLS]", special=True)])
    source = (HERE / "templates" / f"{template}.jinja").read_text() if template else source
    tokenizer = Tokenizer(backend, ChatTemplate(source))
    card = cluster_pb2.ModelCard(name="m", context_tokens=99, vocab_tokens=280, features=features)
    return ServedModel("m", tokenizer, (card,))


async def planned(
    asked: ServedModel, use: ToolUse | None = None, form: Grammar | None = None, **changed: Any
) -> AnswerPlan:
    sampling = SamplingParams(grammar=form)
    request = GenerationRequest("m", CHAT, sampling, tools=use, request_id="r", **changed)
    prompt = asked.tokenizer.encode("assistant\n")
    return await Answers(TextSettings()).plan(request, asked, prompt, 1)


async def test_calls_are_kept_to_where_workers_can() -> None:
    with_grammars, without = model("grammar"), model()
    for calls in CallMode:
        plan = await planned(with_grammars, replace(USE, calls=calls))
        assert plan.request.sampling.grammar is not None
        assert plan.reader is not None
    plan = await planned(without, USE)
    assert plan.request.sampling.grammar is None
    assert plan.reader is not None


@pytest.mark.parametrize(
    ("use", "field"),
    [
        (replace(USE, calls=CallMode.REQUIRED), "tool_choice"),
        (replace(USE, parallel=False), "parallel_tool_calls"),
        (ToolUse((ToolDefinition("f", {}, strict=True),)), "tools.function.strict"),
    ],
)
async def test_what_needs_a_grammar_is_refused_where_there_are_none(
    use: ToolUse, field: str
) -> None:
    with pytest.raises(BatonError, match="do not support structured output") as caught:
        await planned(model(), use)
    assert (caught.value.reason, caught.value.field) == (Reason.UNSUPPORTED_PARAMETER, field)


async def test_a_model_that_writes_no_calls_refuses_tools() -> None:
    for source, said in (
        ("{{ tools }}", r"text\.tool_format"),
        ("[TOOL_CALLS]", "does not support tools"),
    ):
        with pytest.raises(BatonError, match=said) as caught:
            await planned(model("grammar", template="", source=source), USE)
        assert caught.value.field == "tools"
    plan = await planned(model("grammar", template=""), replace(USE, calls=CallMode.NONE))
    assert plan.reader is None


async def test_a_schema_that_cannot_be_kept_is_refused_where_strict_and_relaxed_where_not() -> None:
    asked = model("grammar")
    with pytest.raises(BatonError, match=r"\$\.properties\.a: the keyword not") as caught:
        await planned(asked, ToolUse((*USE.tools, ToolDefinition("f", {}, NOT, strict=True))))
    error = caught.value
    assert (error.reason, error.field) == (Reason.INVALID_FIELD, "tools[2].function.parameters")
    plan = await planned(asked, ToolUse((ToolDefinition("f", {}, NOT),), CallMode.REQUIRED))
    assert plan.request.sampling.grammar is not None


async def test_a_form_is_sent_as_it_is_where_nothing_stands_before_it() -> None:
    plain = model("grammar", template="mistral")
    assert (await planned(plain, form=DIGITS)).request.sampling.grammar is DIGITS
    thinking = await planned(model("grammar"), form=DIGITS)
    assert thinking.request.sampling.grammar not in (None, DIGITS)
    text = GenerationRequest("m", TextPrompt("x"), SamplingParams(grammar=DIGITS))
    plan = await Answers(TextSettings()).plan(text, model("grammar"), [1], 1)
    assert (plan.request, plan.reader) == (text, None)


async def test_forms_are_refused_by_the_name_that_the_client_gave_them() -> None:
    names = {"grammar": "response_format"}
    bad = Grammar.of("json_schema", '{"not": {}}')
    lark = Grammar.of("lark", 'start: "a"')
    for form, said in ((bad, "the keyword not"), (lark, "cannot be combined")):
        with pytest.raises(BatonError, match=said) as caught:
            await planned(model("grammar"), form=form, names=names)
        assert caught.value.field == "response_format"


async def test_formats_may_be_named() -> None:
    asked = model("grammar", template="", source="{{ tools }}")
    settings = TextSettings(tool_format="mistral", reasoning_format="none")
    request = GenerationRequest("m", CHAT, tools=USE, request_id="r")
    plan = await Answers(settings).plan(request, asked, [1], 1)
    assert plan.reader is not None
    assert plan.reader.family.name == "mistral"


@pytest.mark.parametrize("template", ["hermes", "qwen3_coder", "mistral"])
async def test_json_of_forms_and_of_calls_carries_the_bounds_that_are_set(template: str) -> None:
    answers = Answers(TextSettings(json_max_digits=7, json_max_levels=3))
    schema = Grammar.of("json_schema", '{"type": "integer"}')
    asked = GenerationRequest("m", CHAT, SamplingParams(grammar=schema), request_id="r")
    plain_model = model("grammar", template=template)
    text = replace(asked, prompt=TextPrompt("x"))
    bounded = (await answers.plan(text, plain_model, [1], 1)).request.sampling.grammar
    assert bounded is not None
    assert json.loads(bounded.text) == {"type": "integer", "x-bounds": {"digits": 7, "levels": 3}}
    bounded.check()
    tool = ToolDefinition("f", {}, {"properties": {"a": {"type": "integer"}}})
    asked = replace(asked, sampling=SamplingParams(), tools=ToolUse((tool,), CallMode.REQUIRED))
    plan = await answers.plan(asked, plain_model, [1], 1)
    assert plan.request.sampling.grammar is not None
    assert '"x-bounds":{"digits":7,"levels":3}' in plan.request.sampling.grammar.text
    plain = GenerationRequest("m", CHAT, SamplingParams(), request_id="r")
    assert (await answers.plan(plain, plain_model, [1], 1)).request is plain


async def test_each_grammar_of_a_request_is_compiled_once_and_a_form_before_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[tuple[str, str]] = []

    async def note(grammar: Grammar, name: str, tokenizer: Tokenizer, **options: bool) -> Grammar:
        compiled.append((grammar.kind, name))
        return await check_grammar(grammar, name, tokenizer, **options)

    monkeypatch.setattr("services.frontend.generation.resolution.grammars.check_grammar", note)
    names = {"grammar": "response_format"}
    plan = await planned(model("grammar"), USE, DIGITS, names=names)
    assert plan.request.sampling.grammar is not None
    tools = [("json_schema", f"tools[{i}].function.parameters") for i in range(len(USE.tools))]
    assert compiled == [("regex", "response_format"), *tools, ("lark", "tools")]
