"""What the answer to a body looks like."""

import time
from collections.abc import Sequence
from hashlib import sha256

from baton.telemetry.context import request_id
from services.frontend.openai.response import ResponseOptions
from services.frontend.openai.schema import ChatBody, CompletionBody
from services.frontend.openai.templates import Template
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    ResolvedRequest,
    TextPrompt,
)

_FINGERPRINT_DIGITS = 12


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
    first, stream = resolved[0], body.stream_options
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
        reasoning=not isinstance(body, ChatBody) or body.include_reasoning is not False,
        exact_continuation=all(request.exact_continuation for request in resolved),
    )


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
