"""Python client for Baton's gRPC API.

    from baton.client import Client

    with Client("127.0.0.1:50051") as client:
        model = client.models()[0].name
        for text in client.chat("Why is the sky blue?", model=model).iter_text():
            print(text, end="", flush=True)

Every call has a deadline. `baton.client.errors` lists the exceptions that a call can raise.
"""

from baton.client.answer import Answer, Choice, ToolCall
from baton.client.call import Model, Tokens
from baton.client.client import AsyncClient, Client
from baton.client.conversations.message import MessageOptions
from baton.client.conversations.records import ItemPage, StoredConversation
from baton.client.errors import (
    ApiError,
    AuthenticationError,
    BatonClientError,
    CancelledError,
    CapacityError,
    ConflictError,
    ConnectionFailedError,
    ContextLengthError,
    DeadlineError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    StreamClosedError,
    UnavailableError,
    UnsupportedError,
)
from baton.client.requests import ChatOptions, GenerateOptions, Message, Options
from baton.client.stream import AsyncStream, Stream
from baton.client.tools import Tool, ToolCallMessage, ToolChoice
from baton.request.grammar import Grammar
from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    PromptLogprobs,
    Reasoning,
    Started,
    Step,
    Text,
    TokenLogprob,
    Usage,
)

__all__ = [
    "Answer",
    "ApiError",
    "AsyncClient",
    "AsyncStream",
    "AuthenticationError",
    "BatonClientError",
    "CallArguments",
    "CallBegun",
    "CallEnded",
    "CancelledError",
    "CapacityError",
    "ChatOptions",
    "Choice",
    "ChoiceFinished",
    "Client",
    "ConflictError",
    "ConnectionFailedError",
    "ContextLengthError",
    "DeadlineError",
    "Delta",
    "Event",
    "FinishReason",
    "Finished",
    "GenerateOptions",
    "Grammar",
    "InternalError",
    "InvalidRequestError",
    "ItemPage",
    "Message",
    "MessageOptions",
    "Model",
    "NotFoundError",
    "Options",
    "PermissionDeniedError",
    "PromptLogprobs",
    "ProtocolError",
    "Reasoning",
    "Started",
    "Step",
    "StoredConversation",
    "Stream",
    "StreamClosedError",
    "Text",
    "TokenLogprob",
    "Tokens",
    "Tool",
    "ToolCall",
    "ToolCallMessage",
    "ToolChoice",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
]
