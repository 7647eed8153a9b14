"""The JSON differences between chat completions and text completions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.frontend.openai.response.logprobs import ChatLogprobs, CompletionLogprobs, Logprobs


@dataclass(frozen=True, slots=True)
class Template:
    """The JSON format of one kind of completion."""

    operation: str
    """Its name in telemetry."""
    id_prefix: str
    object: str
    """`object` of a whole response."""
    chunk_object: str
    """`object` of a chunk."""
    delta: Callable[[str], dict[str, Any]]
    """Returns the part of a chunk's choice with new text."""
    message: Callable[[str], dict[str, Any]]
    """Returns the part of a whole response's choice with the text."""
    text_before: bytes
    text_after: bytes
    """What `delta` encodes before and after the text."""
    last_delta: dict[str, Any]
    """The same part for the chunk with a choice's finish reason."""
    opening: dict[str, Any] | None
    """The same part for a chunk that precedes all others of a choice; None: there is none."""
    prompt_ids_in_choice: bool
    """Whether a prompt's token ids are in its choices, or next to them."""
    logprobs: Callable[..., Logprobs]


CHAT = Template(
    operation="chat",
    id_prefix="chatcmpl-",
    object="chat.completion",
    chunk_object="chat.completion.chunk",
    delta=lambda text: {"delta": {"content": text}},
    message=lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
    text_before=b'"delta":{"content":',
    text_after=b"}",
    last_delta={"delta": {}},
    opening={"delta": {"role": "assistant", "content": ""}},
    prompt_ids_in_choice=False,
    logprobs=ChatLogprobs,
)
COMPLETION = Template(
    operation="text_completion",
    id_prefix="cmpl-",
    object="text_completion",
    chunk_object="text_completion",
    delta=lambda text: {"text": text},
    message=lambda text: {"text": text},
    text_before=b'"text":',
    text_after=b"",
    last_delta={"text": ""},
    opening=None,
    prompt_ids_in_choice=True,
    logprobs=CompletionLogprobs,
)
