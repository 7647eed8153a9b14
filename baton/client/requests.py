"""Requests from keyword options. Ranges are the server's to check: it names the field and limit."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from baton.v1 import common_pb2, inference_pb2


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    content: str
    name: NotRequired[str]


class Options(TypedDict, total=False):
    """Keyword options of `generate` and `chat`; what is left out has the server's default."""

    max_tokens: int
    """At most this many output tokens. Default: up to the context's end."""
    min_tokens: int
    """No end of sequence and no stop token before this many."""
    stop: str | Sequence[str]
    """Strings that end the output, at most 4."""
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    n: int
    """Independent outputs, 1 to 16."""
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Mapping[int, float]
    logprobs: int
    """Alternatives to report with each token's log probability, 0 to 20."""
    request_id: str
    """Names the request in logs and traces. Default: drawn."""
    timeout: float
    """Seconds for the whole call, retries included. Default: the client's."""
    resume: bool
    """Continue the stream elsewhere if its frontend is lost. Needs n = 1."""


_SAMPLING = frozenset(field.name for field in common_pb2.SamplingParams.DESCRIPTOR.fields)
_STOPPING = frozenset(field.name for field in common_pb2.StopParams.DESCRIPTOR.fields)


def generate_request(
    prompt: str | Sequence[int], model: str, request_id: str, options: Options
) -> inference_pb2.GenerateRequest:
    """Ask for a continuation of text, or of token ids as they are."""
    request = inference_pb2.GenerateRequest(
        context=common_pb2.RequestContext(request_id=request_id, model=model),
        sampling=_sampling(options),
        stopping=_stopping(options),
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
        context=common_pb2.RequestContext(request_id=request_id, model=model),
        messages=chat_messages(messages),
        sampling=_sampling(options),
        stopping=_stopping(options),
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


def check_names(options: Options) -> None:
    """Refuse a misspelt option, which the wire would silently lose.

    Raises:
        TypeError: an option is not one of `Options`.
    """
    unknown = options.keys() - Options.__annotations__
    if unknown:
        raise TypeError(f"unknown option: {', '.join(sorted(unknown))}")


def _sampling(options: Options) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(**_picked(options, _SAMPLING))


def _stopping(options: Options) -> common_pb2.StopParams:
    given = _picked(options, _STOPPING)
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    return common_pb2.StopParams(**given)


def _picked(options: Options, names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}
