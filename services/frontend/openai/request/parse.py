"""From JSON bodies to requests of the frontend's own kind.

A body goes through passes in a fixed order, each a module that takes what those before it returned:
`decode`, `checks`, `functions`, `tools`, `template`, `conversation`, `response_format`,
`parameters`. None goes back to an earlier one. Of several errors the client gets that of the
earliest pass. The prompts of a text completion are read last, by `prompts`.
"""

from typing import NamedTuple

from services.frontend.openai.request.conversation import conversation
from services.frontend.openai.request.functions import tool_fields
from services.frontend.openai.request.parameters import parameters
from services.frontend.openai.request.prompts import read_prompts
from services.frontend.openai.request.response_format import read_form
from services.frontend.openai.request.schema import ChatBody, CompletionBody, TokenizeBody
from services.frontend.openai.request.template import read_template
from services.frontend.openai.request.tools import read_tool_use, read_tools
from services.frontend.openai.service_tier import class_of
from services.frontend.requests.prompt_fields import with_suffix
from services.frontend.requests.request import (
    GenerationRequest,
    Prompt,
    PromptOptions,
    TextPrompt,
)

EXECUTION_HEADER = b"x-baton-execution-id"
_NAMES = {"execution_id": EXECUTION_HEADER.decode()}
_CHAT_NAMES = {**_NAMES, "logprobs": "top_logprobs"}
_NEW_CHAT_NAMES = {**_CHAT_NAMES, "max_tokens": "max_completion_tokens"}


class RequestNames(NamedTuple):
    """What the head of a request says that it is called."""

    request_id: str
    """In logs, traces and answers."""
    execution_id: str = ""
    """The execution that it claims; empty: none."""


def chat_request(body: ChatBody, called: RequestNames, max_messages: int) -> GenerationRequest:
    """Return the request of a chat completion, unchecked.

    Raises:
        BatonError: as of the passes.
    """
    use = read_tool_use(tool_fields(body))
    template = read_template(body, () if use is None else use.tools)
    prompt = conversation(body.messages or (), max_messages, template)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    names, limit = _CHAT_NAMES, body.max_tokens
    if body.max_completion_tokens is not None:
        names, limit = _NEW_CHAT_NAMES, body.max_completion_tokens
    return GenerationRequest(
        model=body.model or "",
        prompt=prompt,
        **parameters(body, read_form(body), names, logprobs=logprobs, max_tokens=limit),
        tools=use,
        n=1 if body.n is None else body.n,
        request_id=called.request_id,
        execution_id=called.execution_id,
        tenant=body.tenant or "",
        priority=class_of(body.service_tier),
        ttft_target_seconds=body.ttft_target_seconds or 0.0,
        timeout_seconds=body.timeout_seconds or 0.0,
    )


def completion_requests(
    body: CompletionBody, called: RequestNames, max_outputs: int
) -> list[GenerationRequest]:
    """Return the requests of a text completion, one per prompt, unchecked.

    Raises:
        BatonError: as of the passes.
    """
    n = body.best_of or (1 if body.n is None else body.n)
    logprobs, prompt_logprobs = body.logprobs, body.prompt_logprobs
    if body.echo and logprobs is not None and prompt_logprobs is None:
        prompt_logprobs = logprobs
    if n > (body.n or 1) and logprobs is None:
        logprobs = 0  # by which the best are chosen
    given = parameters(
        body,
        read_form(body),
        {**_NAMES, "n": "best_of"} if body.best_of else _NAMES,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        max_tokens=body.max_tokens,
    )
    prompts = [
        with_suffix(prompt, body.suffix or "", body.add_special_tokens)
        for prompt in read_prompts(body.prompt, n, max_outputs)
    ]
    return [
        GenerationRequest(
            model=body.model or "",
            prompt=prompt,
            **given,
            n=n,
            request_id=called.request_id if len(prompts) == 1 else f"{called.request_id}-{index}",
            execution_id=called.execution_id,
            prompt_index=index,
            prompt_count=len(prompts),
            tenant=body.tenant or "",
            ttft_target_seconds=body.ttft_target_seconds or 0.0,
            timeout_seconds=body.timeout_seconds or 0.0,
        )
        for index, prompt in enumerate(prompts)
    ]


def tokenized(body: TokenizeBody, max_messages: int) -> tuple[Prompt, PromptOptions]:
    """Return what a tokenize request is about, and how to tokenize it; errors as of
    `conversation`."""
    options = PromptOptions(add_special_tokens=body.add_special_tokens)
    if body.messages is not None and not body.prompt:
        template = read_template(body, read_tools(body.tools or ()))
        return conversation(body.messages, max_messages, template), options
    return TextPrompt(body.prompt or ""), options
