"""Requests from keyword options. Ranges are the server's to check: it names the field and limit."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict, get_type_hints

from baton.sampling import SamplingOptions, SamplingParams
from baton.v1 import common_pb2, inference_pb2


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    content: str
    name: NotRequired[str]


class Options(SamplingOptions, total=False):
    """Keyword options of `generate` and `chat`; what is left out has the server's default."""

    adapter: str
    """One of the model's adapters. Default: none."""
    n: int
    """Independent outputs, 1 to 16."""
    request_id: str
    """Names the request in logs and traces. Default: drawn."""
    timeout: float
    """Seconds for the whole call, retries included. Default: the client's."""
    resume: bool
    """Continue the stream elsewhere if its frontend is lost, unless `Started.exact_continuation` is
    false and tokens were received: tried for 30 s at a time, or not at all with `retries=0`. Needs
    n = 1."""


_NAMES = frozenset(get_type_hints(Options))


def generate_request(
    prompt: str | Sequence[int], model: str, request_id: str, options: Options
) -> inference_pb2.GenerateRequest:
    """Ask for a continuation of text, or of token ids as they are."""
    request = inference_pb2.GenerateRequest(
        context=_context(model, request_id, options),
        sampling=SamplingParams.from_options(options).to_proto(_given(options)),
        n=options.get("n", 0),
    )
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
        request.token_ids.SetInParent()  # an empty prompt is the server's to refuse
    return request


def chat_request(
    messages: str | Sequence[Message], model: str, request_id: str, options: Options
) -> inference_pb2.ChatRequest:
    """Ask for the next assistant turn. A string is one user message."""
    return inference_pb2.ChatRequest(
        context=_context(model, request_id, options),
        messages=chat_messages(messages),
        sampling=SamplingParams.from_options(options).to_proto(_given(options)),
        n=options.get("n", 0),
    )


def tokenize_request(text: str | Sequence[Message], model: str) -> inference_pb2.TokenizeRequest:
    """Ask for the ids of text, or of messages as Chat would render them."""
    if isinstance(text, str):
        return inference_pb2.TokenizeRequest(model=model, text=text)
    return inference_pb2.TokenizeRequest(model=model, messages=chat_messages(text))


def chat_messages(messages: str | Sequence[Message]) -> list[inference_pb2.ChatMessage]:
    """Messages of the wire from a conversation; a string is one user message."""
    if isinstance(messages, str):
        return [inference_pb2.ChatMessage(role="user", content=messages)]
    return [
        inference_pb2.ChatMessage(
            role=message["role"], content=message["content"], name=message.get("name", "")
        )
        for message in messages
    ]


def _given(options: Options) -> set[str]:
    return {name for name, value in options.items() if value is not None}


def _context(model: str, request_id: str, options: Options) -> common_pb2.RequestContext:
    return common_pb2.RequestContext(
        request_id=request_id, model=model, adapter=options.get("adapter", "")
    )


def check_names(options: Options) -> None:
    """Refuse a misspelt option, which the wire would silently lose.

    Raises:
        TypeError: an option is not one of `Options`.
    """
    unknown = options.keys() - _NAMES
    if unknown:
        raise TypeError(f"unknown option: {', '.join(sorted(unknown))}")
