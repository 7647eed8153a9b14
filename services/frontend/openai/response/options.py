"""What the answer to a body looks like."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from baton.telemetry.context import request_id
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.response.templates import Template
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    ResolvedRequest,
    TextPrompt,
)

_FINGERPRINT_DIGITS = 12


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What an answer shall look like."""

    id: str
    """The answer's id."""
    created: int
    """Seconds since the Unix epoch."""
    model: str
    fingerprint: str
    """Of the weights that answer: `system_fingerprint`."""
    n: int
    """Outputs of each prompt that are given."""
    drawn: int
    """Outputs of each prompt that there are; of more than `n` the likeliest are given."""
    logprobs: bool
    token_ids: bool
    """Also give token ids, as vLLM does."""
    usage: bool
    """Give usage in a last chunk of a stream."""
    continuous_usage: bool = False
    """Give usage so far in every chunk of a stream."""
    tokens_as_ids: bool = False
    """Log probabilities name tokens as `token_id:N`."""
    prompt_logprobs: bool = False
    """Also give those of the prompt."""
    echo: Sequence[str] = ()
    """Texts that come before the outputs, one of each prompt; none: nothing is echoed."""
    echo_logprobs: bool = False
    """The echoed prompts have log probabilities, too ..."""
    echo_offsets: Sequence[Sequence[int]] = ()
    """... and this is where in their texts their tokens begin."""
    reasoning: bool = True
    """Give what the model thinks before it answers."""
    functions: bool = False
    """A call is `function_call`, as it was before there were tools."""
    exact_continuation: bool = True
    """Whether the outputs go on with the same tokens at other workers; said where they do not."""


def response_options(
    body: ChatBody | CompletionBody,
    template: Template,
    requests: Sequence[GenerationRequest],
    resolved: Sequence[ResolvedRequest],
) -> ResponseOptions:
    """Return the shape of an answer.

    Args:
        body: what was sent.
        template: of its kind.
        requests: one per prompt.
        resolved: the same, once they are good to run.
    """
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
        reasoning=not isinstance(body, ChatBody) or body.include_reasoning is not False,
        exact_continuation=all(request.exact_continuation for request in resolved),
    )


async def with_offsets(
    options: ResponseOptions, requests: Sequence[ResolvedRequest]
) -> ResponseOptions:
    """Return the shape of an answer with where tokens begin in the prompts that are echoed, which
    are tokenized again for it: on a thread, as they may be long."""
    offsets = [
        await asyncio.to_thread(request.model.tokenizer.offsets, text, request.prompt)
        for text, request in zip(options.echo, requests, strict=True)
    ]
    return replace(options, echo_offsets=offsets)


def fingerprint(weights: str) -> str:
    """Return `system_fingerprint` of the digests of weights."""
    return "fp_" + sha256(weights.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def echoed(asked: GenerationRequest, request: ResolvedRequest) -> str:
    """Return the text that comes before an echoed output: the prompt, or what the assistant has
    said of the turn."""
    match asked.prompt:
        case TextPrompt(text):
            return text
        case ChatPrompt(messages):
            return messages[-1].content if messages[-1].role == "assistant" else ""
    return request.model.tokenizer.decode(request.prompt)
