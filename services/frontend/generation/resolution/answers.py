"""How the outputs of a request are parsed, and the grammar that constrains them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from baton.errors import BatonError, Reason
from baton.settings import TextSettings
from baton.structured.json_schema.bounds import Bounds
from services.frontend.generation.resolution.grammars import GRAMMAR, OutputGrammars
from services.frontend.models.model import ServedModel
from services.frontend.output.definitions import CallMode, ToolUse
from services.frontend.output.formats import AnswerFormat, AnswerReader, answer_format
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.text.tokenizer import Tokenizer


class AnswerPlan(NamedTuple):
    """A request with the grammar of its outputs and their reader."""

    request: GenerationRequest
    reader: AnswerReader | None
    """None: the outputs are plain text."""


class Answers:
    """Knows how each model writes reasoning and tool calls. Runs on the event loop.

    Args:
        settings: output formats of models whose chat templates do not show them, and the bounds of
            JSON.
    """

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings
        self._grammars = OutputGrammars(Bounds(settings.json_max_digits, settings.json_max_levels))
        self._formats: WeakKeyDictionary[Tokenizer, AnswerFormat] = WeakKeyDictionary()

    async def plan(
        self, request: GenerationRequest, model: ServedModel, prompt: Sequence[int], seed: int
    ) -> AnswerPlan:
        """Decide how the outputs of a request are written and parsed.

        Args:
            request: the client's request, checked with its model.
            model: the model that generates.
            prompt: its tokens.
            seed: the seed of its sampling.

        Raises:
            BatonError: the model cannot write tool calls, its workers cannot enforce the requested
                form, or a grammar cannot be enforced.
        """
        found = None
        if isinstance(request.prompt, ChatPrompt):
            found = self._format(model.tokenizer)
            if request.tools is not None:
                _check(request.tools, found, model)
        grammar = await self._grammars.compile(request, found, model, prompt)
        if grammar is not request.sampling.grammar:
            sampling = msgspec.structs.replace(request.sampling, grammar=grammar)
            request = replace(request, sampling=sampling)
        reader = None
        if found is not None:
            reader = found.reader(request.tools, model.tokenizer, prompt, seed, request.request_id)
        return AnswerPlan(request, reader)

    def _format(self, tokenizer: Tokenizer) -> AnswerFormat:
        found = self._formats.get(tokenizer)
        if found is None:
            settings = self._settings
            found = answer_format(tokenizer, settings.tool_format, settings.reasoning_format)
            self._formats[tokenizer] = found
        return found


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
    if GRAMMAR in model.features:
        return
    asked = ""
    if use.calls is CallMode.REQUIRED:
        asked = use.choice_field
    elif not use.parallel:  # only one function is called at a time
        asked = use.field if use.functions else "parallel_tool_calls"
    elif any(tool.strict for tool in use.callable_tools):
        asked = "tools.function.strict"
    else:
        forms = (tool.text for tool in use.callable_tools if tool.text is not None)
        asked = next((one.field for one in forms if one.form is not None), "")
    if asked:
        raise _unsupported(
            asked, f"the workers of model {model.name!r} do not support structured output; omit it"
        )


def _unsupported(field: str, why: str) -> BatonError:
    return BatonError(Reason.UNSUPPORTED_PARAMETER, f"{field}: {why}", field=field)
