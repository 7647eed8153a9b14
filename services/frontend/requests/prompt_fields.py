"""The fields of a request that say how its prompt is made, from values that each surface reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from baton.errors import invalid_field
from services.frontend.requests.request import Prompt, TextPrompt
from services.frontend.text.chat_template import TemplateOptions
from services.frontend.text.json_depth import MAX_DEPTH, deeper
from services.frontend.text.tokenizer_config import ROLES_OF_TOKENS

_MAX_EFFORT = 64
"""Characters of the name of an effort."""
_OF_TEMPLATE = frozenset(
    (
        *("messages", "tools", "documents", "reasoning_effort", "chat_template"),
        *("add_generation_prompt", "continue_final_message"),
        *("additional_special_tokens", *ROLES_OF_TOKENS),
        *("raise_exception", "strftime_now", "tokenize", "return_dict"),
    )
)
"""What `chat_template_kwargs` cannot say: requests have fields for it, or it is the template's."""


def template_options(
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool,
    chat_template_kwargs: Mapping[str, Any] | None,
    documents: Sequence[Any] | None = None,
    reasoning_effort: str | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> TemplateOptions:
    """Return what a request asks of the chat template.

    Args:
        add_generation_prompt: None: where the output does not go on with the last message.
        continue_final_message: whether it does.
        chat_template_kwargs: plain JSON.
        documents: plain JSON.
        reasoning_effort: None: the template's own.
        tools: as OpenAI writes them.

    Raises:
        BatonError: INVALID_FIELD, a variable is not the client's to say, JSON has too many levels,
            or both an open last message and a new turn are asked for.
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
    """Return a prompt whose output leads to a text; an empty `suffix` is none.

    Raises:
        BatonError: INVALID_FIELD, the prompt is no text, or special tokens are asked for besides.
    """
    if not suffix:
        return prompt
    if not isinstance(prompt, TextPrompt):
        raise invalid_field("suffix", "requires a text prompt, not token ids")
    if add_special_tokens is not None:
        raise invalid_field("suffix", "cannot be combined with add_special_tokens")
    return TextPrompt(prompt.text, suffix)
