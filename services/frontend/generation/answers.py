"""How the outputs of a request are parsed, and the grammar that constrains them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from baton.request.grammar import Grammar
from baton.settings import TextSettings
from baton.structured.json_schema.bounds import Bounds
from services.frontend.models.model import ServedModel
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.output.formats import (
    THINK,
    THINK_END,
    AnswerFormat,
    AnswerReader,
    answer_format,
)
from services.frontend.output.grammar import ANY_OBJECT, AnswerGrammar, arguments_schema
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.requests.validation.bans import check_bans_of
from services.frontend.requests.validation.grammar import check_grammar
from services.frontend.text.tokenizer import Tokenizer

_GRAMMAR = "grammar"
"""The feature of models whose workers enforce grammars."""


class AnswerPlan(NamedTuple):
    """A request with the grammar of its outputs, and their reader."""

    request: GenerationRequest
    reader: AnswerReader | None
    """None: the outputs are plain text."""


class Answers:
    """Knows how each model writes reasoning and tool calls. Lives on the event loop.

    Args:
        settings: formats of models, where their chat templates do not show them, and the bounds of
            JSON.
    """

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings
        self._bounds = Bounds(settings.json_max_digits, settings.json_max_levels)
        self._formats: WeakKeyDictionary[Tokenizer, AnswerFormat] = WeakKeyDictionary()

    async def check_form(self, request: GenerationRequest, model: ServedModel) -> GenerationRequest:
        """Return a request whose form can be enforced, with bounds where its schema sets none.

        Raises:
            BatonError: it cannot be enforced.
        """
        form = request.sampling.grammar
        if form is None:
            return request
        text = self._bounds.added_to(form.text) if form.kind == "json_schema" else form.text
        bounded = form if text == form.text else Grammar.of(form.kind, text)
        field = request.names.get(_GRAMMAR, _GRAMMAR)
        kept = await check_grammar(bounded, field, model.tokenizer, strict=request.strict_form)
        await check_bans_of(kept, field, request.sampling, model.tokenizer, request.names)
        return request if kept is form else _with_grammar(request, kept)

    async def plan(
        self, request: GenerationRequest, model: ServedModel, prompt: Sequence[int], seed: int
    ) -> AnswerPlan:
        """Decide how the outputs of a request are written and parsed.

        Args:
            request: the client's request, checked, including its grammar.
            model: the model that generates.
            prompt: its tokens.
            seed: of its sampling.

        Raises:
            BatonError: the model's outputs have no calls, its workers cannot enforce what is
                requested, or a grammar cannot be enforced.
        """
        form = request.sampling.grammar
        if not isinstance(request.prompt, ChatPrompt):
            return AnswerPlan(request, None)
        found, use = self._format(model.tokenizer), request.tools
        if use is not None:
            _check(use, found, model)
        reader = found.reader(use, model.tokenizer, prompt, seed, request.request_id)
        grammar = await self._grammar(request, found, model, prompt)
        if grammar is not None and grammar is not form:
            request = _with_grammar(request, grammar)
        return AnswerPlan(request, reader)

    async def _grammar(
        self,
        request: GenerationRequest,
        found: AnswerFormat,
        model: ServedModel,
        prompt: Sequence[int],
    ) -> Grammar | None:
        """Return the grammar of a whole output: reasoning, calls, a form."""
        use, form = request.tools, request.sampling.grammar
        form_field = request.names.get(_GRAMMAR, _GRAMMAR)
        written = use if use is not None and found.family is not None else None
        if _GRAMMAR not in model.features or (written is None and form is None):
            return form
        start = found.start(model.tokenizer, prompt, found.table)
        if written is None and not start.startswith("think"):
            return form
        markers = found.table.markers
        tags = {text: token for text, token in model.tokenizer.tags.items() if token in markers}
        writer, parts = AnswerGrammar(tags, self._bounds), []
        if start.startswith("think"):
            parts.append(writer.reasoning(THINK, THINK_END, opened=start == "think_begun"))
        body = ""
        if form is not None:
            try:
                body = writer.form(form)
            except ValueError as error:
                raise invalid_field(form_field, str(error)) from None
        call_form = found.family.form if found.family is not None else None
        if written is not None and call_form is not None:
            if written.calls is not CallMode.NONE:
                schemas = await self._schemas(written, model)
                tools = written.callable_tools
                writer.calls(call_form, tools, schemas, parallel=written.parallel)
            body = writer.answer(call_form, written.calls, body)
        grammar = writer.write(*parts, body)
        field = written.field if written is not None else form_field
        try:
            grammar.check()
        except ValueError as error:
            raise invalid_field(field, str(error)) from None
        await check_grammar(grammar, field, model.tokenizer)
        if written is not None and written.calls is CallMode.REQUIRED:
            field = written.choice_field
        await check_bans_of(grammar, field, request.sampling, model.tokenizer, request.names)
        return grammar

    async def _schemas(self, use: ToolUse, model: ServedModel) -> dict[str, Mapping[str, Any]]:
        """Return the schemas of the arguments; for a tool that is not strict, the enforceable part,
        or any object if there is none."""
        schemas: dict[str, Mapping[str, Any]] = {}
        positions = {tool.name: at for at, tool in enumerate(use.tools)}
        for tool in use.callable_tools:
            field = f"{use.field_of(positions[tool.name])}.parameters"
            schemas[tool.name] = await self._schema(tool, field, model)
        return schemas

    async def _schema(
        self, tool: ToolDefinition, field: str, model: ServedModel
    ) -> Mapping[str, Any]:
        schema = arguments_schema(tool)
        try:
            grammar = Grammar.of("json_schema", json.dumps(schema))
            kept = await check_grammar(grammar, field, model.tokenizer, strict=tool.strict)
        except BatonError as error:
            if tool.strict or error.reason is not Reason.INVALID_FIELD:
                raise
            return ANY_OBJECT
        return schema if kept is grammar else json.loads(kept.text)

    def _format(self, tokenizer: Tokenizer) -> AnswerFormat:
        found = self._formats.get(tokenizer)
        if found is None:
            settings = self._settings
            found = answer_format(tokenizer, settings.tool_format, settings.reasoning_format)
            self._formats[tokenizer] = found
        return found


def _with_grammar(request: GenerationRequest, grammar: Grammar) -> GenerationRequest:
    sampling = msgspec.structs.replace(request.sampling, grammar=grammar)
    return replace(request, sampling=sampling)


def _check(use: ToolUse, found: AnswerFormat, model: ServedModel) -> None:
    """Reject what the model, or its workers, do not support."""
    if use.calls is CallMode.NONE:
        return
    if not model.tokenizer.template.writes_tools:
        raise _unsupported(
            use.field,
            f"the chat template of model {model.name!r} does not support tools: describe them in a "
            "message, or ask the operator to serve a template that supports them",
        )
    if found.family is None:
        raise _unsupported(
            use.field,
            f"the tool call format of model {model.name!r} is unknown: ask the operator to set "
            "text.tool_format",
        )
    if _GRAMMAR in model.features:
        return
    asked = ""
    if use.calls is CallMode.REQUIRED:
        asked = use.choice_field
    elif not use.parallel:  # functions are called one at a time
        asked = use.field if use.functions else "parallel_tool_calls"
    elif any(tool.strict for tool in use.callable_tools):
        asked = "tools.function.strict"
    if asked:
        raise _unsupported(
            asked, f"the workers of model {model.name!r} do not support structured output; omit it"
        )


def _unsupported(field: str, why: str) -> BatonError:
    return BatonError(Reason.UNSUPPORTED_PARAMETER, f"{field}: {why}", field=field)
