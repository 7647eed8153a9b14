"""The contents of a response, as requested by its body."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from baton.telemetry.context import request_id
from services.frontend.models.model import ServedModel
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.response.templates import Template
from services.frontend.openai.service_tier import answered_tier
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    ResolvedRequest,
    TextPrompt,
)

_FINGERPRINT_DIGITS = 12


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Which contents a response has."""

    id: str
    """The response's id."""
    created: int
    """Seconds since the Unix epoch."""
    model: str
    fingerprint: str
    """`system_fingerprint`, derived from the weights."""
    n: int
    """Outputs to deliver per prompt."""
    drawn: int
    """Outputs sampled per prompt; if more than `n`, the likeliest are delivered."""
    logprobs: bool
    token_ids: bool
    """Include token ids, as vLLM does."""
    usage: bool
    """Include usage in a last chunk of a stream."""
    continuous_usage: bool = False
    """Include usage so far in every chunk of a stream."""
    tokens_as_ids: bool = False
    """Write tokens of log probabilities as `token_id:N`."""
    prompt_logprobs: bool = False
    """Include log probabilities of the prompt."""
    echo: Sequence[str] = ()
    """Texts that precede the outputs, one per prompt; empty: nothing is echoed."""
    echo_logprobs: bool = False
    """Whether the echoed prompts have log probabilities ..."""
    echo_offsets: Sequence[Sequence[int]] = ()
    """... and the offsets of their tokens in their texts."""
    reasoning: bool = True
    """Include the model's reasoning."""
    functions: bool = False
    """Write a call as `function_call`, the predecessor of tools."""
    custom: frozenset[str] = frozenset()
    """Names of tools whose calls have an input, not arguments."""
    exact_continuation: bool = True
    """Whether other workers continue the outputs with the same tokens; reported if not."""
    service_tier: str | None = None
    """The tier, if the body says one."""
    requested_model: str = ""
    """The name that the client sent, reported if another model answers; empty: it does not."""


async def response_options(
    body: ChatBody | CompletionBody,
    template: Template,
    requests: Sequence[GenerationRequest],
    resolved: Sequence[ResolvedRequest],
) -> ResponseOptions:
    """Return the options of a response.

    Args:
        body: the request body.
        template: of its kind of completion.
        requests: one per prompt.
        resolved: the same requests, resolved.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: the model's provider does not send what is asked for.
    """
    _check_provided(body, resolved[0].model)
    options = _options(body, template, requests, resolved)
    return await _with_offsets(options, resolved) if options.echo_logprobs else options


def _options(
    body: ChatBody | CompletionBody,
    template: Template,
    requests: Sequence[GenerationRequest],
    resolved: Sequence[ResolvedRequest],
) -> ResponseOptions:
    first, stream, use = resolved[0], body.stream_options, requests[0].tools
    is_chat = isinstance(body, ChatBody)
    return ResponseOptions(
        id=template.id_prefix + request_id.get(),
        created=int(time.time()),
        model=first.named,
        fingerprint=fingerprint(first.model.weights),
        n=body.n or 1,
        drawn=first.n,
        logprobs=bool(body.logprobs) if is_chat else body.logprobs is not None,
        token_ids=bool(body.return_token_ids),
        usage=stream is not None and bool(stream.include_usage),
        continuous_usage=stream is not None and bool(stream.continuous_usage_stats),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
        prompt_logprobs=requests[0].sampling.prompt_logprobs is not None
        and body.prompt_logprobs is not None,
        echo=[echoed(asked, request) for asked, request in zip(requests, resolved, strict=True)]
        if body.echo
        else (),
        echo_logprobs=bool(body.echo) and first.prompt_logprobs is not None and not is_chat,
        functions=use is not None and use.functions,
        custom=frozenset() if use is None else use.custom,
        reasoning=not isinstance(body, ChatBody) or body.include_reasoning is not False,
        exact_continuation=all(request.exact_continuation for request in resolved),
        service_tier=answered_tier(body.service_tier) if isinstance(body, ChatBody) else None,
        requested_model=first.requested,
    )


def _check_provided(body: ChatBody | CompletionBody, model: ServedModel) -> None:
    """Check that a response needs no token ids if its model is of a provider, which sends none.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER.
    """
    if model.provided is None:
        return
    why = f"by the provider of model {model.name!r}, {model.owner}; omit it"
    if body.return_token_ids:
        raise unsupported("return_token_ids", why=why)
    if body.stream_options is not None and body.stream_options.continuous_usage_stats:
        raise unsupported("stream_options.continuous_usage_stats", why=why)


async def _with_offsets(
    options: ResponseOptions, requests: Sequence[ResolvedRequest]
) -> ResponseOptions:
    """Return the options with the offsets of tokens in echoed prompts, which are tokenized again
    for it: on a thread, as they may be long."""
    offsets = [
        await asyncio.to_thread(request.model.tokenizer.offsets, text, request.prompt)
        for text, request in zip(options.echo, requests, strict=True)
    ]
    return replace(options, echo_offsets=offsets)


def fingerprint(weights: str) -> str:
    """Return `system_fingerprint` for digests of weights."""
    return "fp_" + sha256(weights.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def echoed(asked: GenerationRequest, request: ResolvedRequest) -> str:
    """Return the text that precedes an echoed output: the prompt, or the given beginning of the
    assistant's turn."""
    match asked.prompt:
        case TextPrompt(text):
            return text
        case ChatPrompt(messages):
            return messages[-1].content if messages[-1].role == "assistant" else ""
    return request.model.tokenizer.decode(request.prompt)
