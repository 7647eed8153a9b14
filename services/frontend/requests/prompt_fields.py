"""The fields of a request that determine its prompt, from the values that each API parses."""

from collections.abc import Mapping, Sequence
from typing import Any

from baton.errors import invalid_field
from services.frontend.requests.request import Prompt, TextPrompt
from services.frontend.text.chat_template import TemplateOptions
from services.frontend.text.json_depth import MAX_DEPTH, deeper
from services.frontend.text.tokenizer_config import ROLES_OF_TOKENS

_MAX_EFFORT = 64
"""The most characters of an effort's name."""
_OF_TEMPLATE = frozenset(
    (
        *("messages", "tools", "documents", "reasoning_effort", "chat_template"),
        *("add_generation_prompt", "continue_final_message"),
        *("additional_special_tokens", *ROLES_OF_TOKENS),
        *("raise_exception", "strftime_now", "tokenize", "return_dict"),
    )
)
"""Variables that `chat_template_kwargs` cannot set: requests have fields for them, or they belong
to the template."""


def template_options(
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool,
    chat_template_kwargs: Mapping[str, Any] | None,
    documents: Sequence[Any] | None = None,
    reasoning_effort: str | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> TemplateOptions:
    """Return the options of a request for the chat template.

    Args:
        add_generation_prompt: None: add it unless the output continues the last message.
        continue_final_message: whether the output continues the last message.
        chat_template_kwargs: plain JSON.
        documents: plain JSON.
        reasoning_effort: None: the template's default.
        tools: in OpenAI's format.

    Raises:
        BatonError: INVALID_FIELD: clients may not set a variable, JSON is nested too deeply, or
            both an open last message and a new turn are requested.
    """
    own = chat_template_kwargs or {}
    for name in own:
        if name in _OF_TEMPLATE:
            field = f"chat_template_kwargs.{name}"
            raise invalid_field(
                field, "cannot be set here; use the request's field if there is one"
            )
    for field, value in (("chat_template_kwargs", own), ("documents", list(documents or ()))):
        if deeper(value, MAX_DEPTH):
            raise invalid_field(field, f"is nested more than {MAX_DEPTH} levels deep")
    if continue_final_message and add_generation_prompt:
        raise invalid_field(
            "continue_final_message",
            "cannot be combined with add_generation_prompt",
        )
    variables: dict[str, Any] = {}
    if documents is not None:
        variables["documents"] = documents
    if reasoning_effort is not None:
        if len(reasoning_effort) > _MAX_EFFORT:
            raise invalid_field("reasoning_effort", f"has more than {_MAX_EFFORT} characters")
        variables["reasoning_effort"] = reasoning_effort
        variables["enable_thinking"] = reasoning_effort != "none"
    return TemplateOptions(
        add_generation_prompt=add_generation_prompt is not False and not continue_final_message,
        continue_final_message=continue_final_message,
        variables={**variables, **own},
        tools=tools,
    )


def with_suffix(prompt: Prompt, suffix: str, add_special_tokens: bool | None) -> Prompt:
    """Return a prompt whose output leads to `suffix`; an empty suffix has no effect.

    Raises:
        BatonError: INVALID_FIELD: the prompt is not text, or special tokens are also requested.
    """
    if not suffix:
        return prompt
    if not isinstance(prompt, TextPrompt):
        raise invalid_field("suffix", "requires a text prompt, not token ids")
    if add_special_tokens is not None:
        raise invalid_field("suffix", "cannot be combined with add_special_tokens")
    return TextPrompt(prompt.text, suffix)
