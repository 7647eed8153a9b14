"""A message in a conversation, from keyword options."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_type_hints

from baton.client.conversations.calls import json_items
from baton.client.requests import (
    PicturePart,
    TextPart,
    content_fields,
    context_of,
    given,
    json_text,
)
from baton.client.tools import Tool, ToolChoice, tool_choice_message, tool_messages
from baton.sampling import SamplingOptions, SamplingParams
from baton.v1 import conversations_pb2


class MessageOptions(SamplingOptions, total=False):
    """Keyword options of `send`; an omitted option has the server's default."""

    model: str
    """Default: that of the conversation's last response."""
    adapter: str
    """One of the model's adapters. Default: none."""
    fallback: Literal["allow", "never"]
    """Whether another model may answer, as of `chat`."""
    items: Sequence[Mapping[str, Any]]
    """Items before the message, in OpenAI's form, such as outputs of tool calls."""
    instructions: str
    """A system message before the conversation; not part of it."""
    tools: Sequence[Tool]
    """Functions that the model may call."""
    tool_choice: str | ToolChoice
    """`auto`, `none`, `required`, or the name of the tool to call. Default: auto."""
    parallel_tool_calls: bool
    """Whether the response may have more than one call. Default: true."""
    chat_template_kwargs: Mapping[str, Any]
    """Variables of the chat template; plain JSON."""
    reasoning_effort: str
    """Variable of the chat template, as of `chat`."""
    truncate: bool
    """Leave out the oldest turns of a conversation that does not fit. Default: reject it."""
    compact_threshold: int
    """Tokens beyond which a summary takes the place of the oldest turns; 0: the server's default.
    Default: none is written."""
    metadata: Mapping[str, str]
    """Of the response."""
    request_id: str
    """Names the request in logs and traces. Default: random."""
    timeout: float
    """Seconds for the whole call, retries included. Default: the client's."""


_NAMES = frozenset(get_type_hints(MessageOptions))


def message_request(
    conversation: str,
    content: str | Sequence[TextPart | PicturePart],
    request_id: str,
    options: MessageOptions,
) -> conversations_pb2.SendMessageRequest:
    """Return the request of a message.

    Raises:
        TypeError: an option is unknown or has the wrong type.
        ValueError: a request cannot carry an option's value.
    """
    unknown = options.keys() - _NAMES
    if unknown:
        raise TypeError(f"unknown option: {', '.join(sorted(unknown))}")
    request = conversations_pb2.SendMessageRequest(
        context=context_of(options.get("model", ""), request_id, options),
        conversation_id=conversation,
        **content_fields(content),
        items=json_items(options.get("items", ())),
        sampling=SamplingParams.from_options(options).to_proto(given(options)),
        instructions=options.get("instructions", ""),
        tools=tool_messages(options.get("tools") or ()),
        parallel_tool_calls=options.get("parallel_tool_calls"),
        chat_template_kwargs=json_text(options.get("chat_template_kwargs")),
        reasoning_effort=options.get("reasoning_effort"),
        truncate=options.get("truncate", False),
        metadata=options.get("metadata", {}),
        compact_threshold=options.get("compact_threshold"),
    )
    choice = options.get("tool_choice")
    if choice is not None:
        request.tool_choice.CopyFrom(tool_choice_message(choice))
    return request
