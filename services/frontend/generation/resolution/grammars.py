"""The grammar of a request's outputs, created and compiled off the event loop in one step.

A client's output form is compiled alone, so that an error names its field; then the arguments of
each tool; then the whole output, if it is more than the form: reasoning, tool calls, and the form
within.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from baton.errors import BatonError, Reason, invalid_field
from baton.request.grammar import Grammar
from baton.structured.json_schema.bounds import Bounds
from services.frontend.models.model import ServedModel
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.output.formats import THINK, THINK_END, AnswerFormat
from services.frontend.output.grammar import ANY_OBJECT, AnswerGrammar, arguments_schema
from services.frontend.requests.request import GenerationRequest
from services.frontend.requests.validation.bans import check_bans_of
from services.frontend.requests.validation.grammar import check_grammar

GRAMMAR = "grammar"
"""The feature of models whose workers enforce grammars, and the name of a form's field."""


class OutputGrammars:
    """Compiles the grammars of outputs for each model's tokens. Runs on the event loop.

    Args:
        bounds: bounds of JSON if its schema sets none.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    async def compile(
        self,
        request: GenerationRequest,
        found: AnswerFormat | None,
        model: ServedModel,
        prompt: Sequence[int],
    ) -> Grammar | None:
        """Return the compiled grammar that workers enforce; None: any output.

        Args:
            request: the client's request, checked with its model.
            found: how the model writes its outputs; None: as text alone.
            model: the model that generates.
            prompt: its tokens.

        Raises:
            BatonError: a grammar cannot be enforced, or forbids what the request requires.
        """
        form = await self._form(request, model)
        if found is None or GRAMMAR not in model.features:
            return form
        use = request.tools if found.family is not None else None
        if use is None and form is None:
            return None
        start = found.start(model.tokenizer, prompt, found.table)
        if use is None and not start.startswith("think"):
            return form
        grammar = await self._whole(request, found, start, form, use, model)
        field = use.field if use is not None else _form_field(request)
        try:
            grammar.check()
        except ValueError as error:
            raise invalid_field(field, str(error)) from None
        await check_grammar(grammar, field, model.tokenizer)
        if use is not None and use.calls is CallMode.REQUIRED:
            field = use.choice_field
        await check_bans_of(grammar, field, request.sampling, model.tokenizer, request.names)
        return grammar

    async def _form(self, request: GenerationRequest, model: ServedModel) -> Grammar | None:
        """Return the client's form, compiled, with bounds if its schema sets none."""
        form = request.sampling.grammar
        if form is None:
            return None
        text = self._bounds.added_to(form.text) if form.kind == "json_schema" else form.text
        bounded = form if text == form.text else Grammar.of(form.kind, text)
        field = _form_field(request)
        kept = await check_grammar(bounded, field, model.tokenizer, strict=request.strict_form)
        await check_bans_of(kept, field, request.sampling, model.tokenizer, request.names)
        return kept

    async def _whole(
        self,
        request: GenerationRequest,
        found: AnswerFormat,
        start: str,
        form: Grammar | None,
        use: ToolUse | None,
        model: ServedModel,
    ) -> Grammar:
        """Return the uncompiled grammar of reasoning, calls and a form, from state `start` on."""
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
                raise invalid_field(_form_field(request), str(error)) from None
        call_form = found.family.form if found.family is not None else None
        if use is not None and call_form is not None:
            if use.calls is not CallMode.NONE:
                schemas = await self._schemas(use, model)
                writer.calls(call_form, use.callable_tools, schemas, parallel=use.parallel)
            body = writer.answer(call_form, use.calls, body)
        return writer.write(*parts, body)

    async def _schemas(self, use: ToolUse, model: ServedModel) -> dict[str, Mapping[str, Any]]:
        """Return the schemas of the arguments of each tool.

        For a tool that is not strict: the enforceable part, or any object if there is none.
        """
        schemas: dict[str, Mapping[str, Any]] = {}
        positions = {tool.name: at for at, tool in enumerate(use.tools)}
        for tool in use.callable_tools:
            if tool.text is not None and tool.text.form is not None:
                await check_grammar(tool.text.form, tool.text.field, model.tokenizer)
            field = f"{use.field_of(positions[tool.name])}.parameters"
            schemas[tool.name] = await _schema(tool, field, model)
        return schemas


async def _schema(tool: ToolDefinition, field: str, model: ServedModel) -> Mapping[str, Any]:
    schema = arguments_schema(tool)
    try:
        grammar = Grammar.of("json_schema", json.dumps(schema))
        kept = await check_grammar(grammar, field, model.tokenizer, strict=tool.strict)
    except BatonError as error:
        if tool.strict or error.reason is not Reason.INVALID_FIELD:
            raise
        return ANY_OBJECT
    return schema if kept is grammar else json.loads(kept.text)


def _form_field(request: GenerationRequest) -> str:
    """Return the client's name for the field of its form."""
    return request.names.get(GRAMMAR, GRAMMAR)
