"""Between the public messages of `baton.v1` and the frontend's own types."""

from collections.abc import Sequence

from baton.sampling import SamplingParams
from baton.v1 import inference_pb2
from services.frontend.grpc.tools import calls_of, tool_use_of, tools_of
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    Resume,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.requests.validate import check_messages
from services.frontend.text.chat_template import PLAIN, Message, TemplateOptions


def generation_request(
    request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest,
    request_id: str,
    max_messages: int,
) -> GenerationRequest:
    """Return the request that a client sent, unchecked.

    Raises:
        BatonError: as of `messages_of` and `tool_use_of`.
    """
    context, resume = request.context, None
    if request.HasField("resume"):
        resume = Resume(request.resume.output_ids, request.resume.seed)
    return GenerationRequest(
        model=context.model,
        prompt=_prompt(request, max_messages),
        sampling=SamplingParams.from_proto(request.sampling),
        given=frozenset(each.name for each, _ in request.sampling.ListFields()),
        tools=tool_use_of(request) if isinstance(request, inference_pb2.ChatRequest) else None,
        n=request.n or 1,
        resume=resume,
        take_over=resume is not None or context.attempt > 0,
        request_id=request_id,
        tenant=context.tenant,
        priority=context.priority,
        ttft_target_seconds=context.ttft_target_seconds,
        adapter=context.adapter,
        cache_scope=context.cache_scope,
    )


def messages_of(
    messages: Sequence[inference_pb2.ChatMessage],
    tools: Sequence[inference_pb2.Tool],
    max_messages: int,
) -> ChatPrompt:
    """Return the prompt of a conversation, with the tools that the model is told of.

    Raises:
        BatonError: it has more than `max_messages`; or as of `tools_of`.
    """
    check_messages(len(messages), max_messages)
    made = [
        Message(
            one.role,
            one.content,
            one.name,
            calls_of(one.tool_calls),
            one.tool_call_id,
            one.reasoning,
        )
        for one in messages
    ]
    options = TemplateOptions(tools=[tool.definition for tool in tools_of(tools)])
    return ChatPrompt(made, options if tools else PLAIN)


def _prompt(
    request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest, max_messages: int
) -> Prompt:
    if isinstance(request, inference_pb2.ChatRequest):
        return messages_of(request.messages, request.tools, max_messages)
    if request.WhichOneof("prompt") == "token_ids":
        return TokenPrompt(request.token_ids.ids)
    return TextPrompt(request.text)
