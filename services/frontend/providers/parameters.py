"""Which parameters an upstream takes; others are rejected, unless a quirk drops them."""

from collections.abc import Set
from dataclasses import replace
from typing import Any

from baton.sampling import PARAMETERS
from services.frontend.models.model import ProvidedBy
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import WHOLE_PROMPT, ChatPrompt, GenerationRequest

_EFFORT = "reasoning_effort"
_THINKING = "enable_thinking"
"""Set with the effort, for templates."""


def given_parameters(
    request: GenerationRequest, prompt: ChatPrompt, at: ProvidedBy, taken: Set[str]
) -> dict[str, Any]:
    """Return the parameters that are sent, by Baton's names; those with their default are not.

    `max_tokens` is not among them.

    Args:
        request: the client's request, checked.
        prompt: its conversation.
        at: the model.
        taken: names of the parameters that the upstream's API has.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: the upstream does not take one.
    """
    if prompt.pictures:
        raise unsupported(prompt.pictures[0].field, why=_by_provider(at))
    given: dict[str, Any] = {
        each.name: value
        for each in PARAMETERS
        if (value := getattr(request.sampling, each.name)) != each.default
        or (each.name in request.given and each.name == "temperature")
    }
    given.pop("max_tokens", None)
    if request.n != 1:
        given["n"] = request.n
    if request.tools is not None:
        given["tools"] = request.tools
        for tool in request.tools.tools:
            if tool.text is not None and tool.text.form is not None:
                raise unsupported(tool.text.field, why=_by_provider(at))
    options = prompt.options
    variables = dict(options.variables)
    if (effort := variables.pop(_EFFORT, None)) is not None:
        given[_EFFORT] = effort
        variables.pop(_THINKING, None)
    for name in variables:
        given["documents" if name == "documents" else f"chat_template_kwargs.{name}"] = True
    if options.continue_final_message:
        given["continue_final_message"] = True
    elif not options.add_generation_prompt:
        given["add_generation_prompt"] = False
    if request.prompt_options.drop_turns:
        given["truncation"] = True
    if request.prompt_options.compacts:
        given["context_management"] = True
    others = replace(request.prompt_options, drop_turns=False, compacts=False)
    if others != WHOLE_PROMPT:
        given["truncate_prompt_tokens"] = True
    if request.resume is not None:
        given["resume"] = True
    if request.adapter:
        given["adapter"] = request.adapter
    dropped, more = at.provider.fields_of("drop"), at.provider.fields_of("takes")
    sent: dict[str, Any] = {}
    for name, value in given.items():
        if name in dropped and not request.whole:
            continue
        if name in dropped or (name not in taken and name not in more):
            raise unsupported(
                request.names.get(name, name),
                why=_by_provider(at),
            )
        sent[name] = value
    return sent


def _by_provider(at: ProvidedBy) -> str:
    return f"by the provider of model {at.model.name!r}, {at.provider.id}; omit it"
