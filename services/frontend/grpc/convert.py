"""Between the public messages of `baton.v1` and the frontend's own types."""

from collections.abc import Iterable

from baton.sampling import SamplingParams
from baton.v1 import inference_pb2
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    Resume,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.text.chat_template import Message


def generation_request(
    request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest, request_id: str
) -> GenerationRequest:
    """Return the request that a client sent, unchecked."""
    context, resume = request.context, None
    if request.HasField("resume"):
        resume = Resume(list(request.resume.output_ids), request.resume.seed)
    return GenerationRequest(
        model=context.model,
        prompt=_prompt(request),
        sampling=SamplingParams.from_proto(request.sampling),
        structured=request.HasField("structure"),
        n=request.n or 1,
        resume=resume,
        request_id=request_id,
        tenant=context.tenant,
        priority=context.priority,
        adapter=context.adapter,
        cache_scope=context.cache_scope,
    )


def messages_of(messages: Iterable[inference_pb2.ChatMessage]) -> ChatPrompt:
    """Return the prompt of a conversation."""
    return ChatPrompt([Message(one.role, one.content, one.name) for one in messages])


def _prompt(request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest) -> Prompt:
    if isinstance(request, inference_pb2.ChatRequest):
        return messages_of(request.messages)
    if request.WhichOneof("prompt") == "token_ids":
        return TokenPrompt(list(request.token_ids.ids))
    return TextPrompt(request.text)
