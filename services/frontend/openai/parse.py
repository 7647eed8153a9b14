"""From JSON bodies to requests of the frontend's own kind."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from baton.sampling import PARAMETERS, SamplingParams
from services.frontend.http.json_body import decode_body, not_json
from services.frontend.openai.schema import (
    ChatBody,
    Common,
    CompletionBody,
    MessageBody,
    TokenizeBody,
    refuse_unsupported,
)
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.requests.validate import check_messages, unsupported
from services.frontend.text.chat_template import Message

DEFAULT_COMPLETION_TOKENS = 16
"""max_tokens of text completions that do not say it, as OpenAI documents."""

_CHAT_NAMES = {"logprobs": "top_logprobs"}
_NEW_CHAT_NAMES = {**_CHAT_NAMES, "max_tokens": "max_completion_tokens"}

_chat = msgspec.json.Decoder(ChatBody)
_completion = msgspec.json.Decoder(CompletionBody)
_tokenize = msgspec.json.Decoder(TokenizeBody)
_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])
_ids = msgspec.json.Decoder(list[int])
_id_lists = msgspec.json.Decoder(list[list[int]])


def read_chat(data: bytes) -> ChatBody:
    """Decode the body of a chat completion.

    Raises:
        BatonError: it is no JSON, a type is wrong, or a parameter is not supported.
    """
    body = decode_body(_chat, data)
    refuse_unsupported(body)
    return body


def read_completion(data: bytes) -> CompletionBody:
    """Decode the body of a text completion; errors as of `read_chat`."""
    body = decode_body(_completion, data)
    refuse_unsupported(body)
    return body


def read_tokenize(data: bytes) -> TokenizeBody:
    """Decode the body of a tokenize request; errors as of `read_chat`."""
    return decode_body(_tokenize, data)


def chat_request(body: ChatBody, request_id: str, max_messages: int) -> GenerationRequest:
    """Return the request of a chat completion, unchecked.

    Raises:
        BatonError: as of `conversation`; logprobs are asked for in a way that makes no sense.
    """
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid_field("top_logprobs", "needs logprobs to be true")
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return GenerationRequest(
        model=body.model or "",
        prompt=conversation(body.messages or (), max_messages),
        sampling=_sampling(body, logprobs=logprobs, max_tokens=limit),
        n=1 if body.n is None else body.n,
        request_id=request_id,
        tenant=body.tenant or "",
        names=_CHAT_NAMES if body.max_completion_tokens is None else _NEW_CHAT_NAMES,
    )


def completion_requests(
    body: CompletionBody, request_id: str, max_outputs: int
) -> list[GenerationRequest]:
    """Return the requests of a text completion, one per prompt, unchecked.

    Raises:
        BatonError: prompts times `n` is more than `max_outputs`.
    """
    limit = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    sampling = _sampling(body, max_tokens=limit)
    n = 1 if body.n is None else body.n
    prompts = _prompts(body.prompt, n, max_outputs)
    return [
        GenerationRequest(
            model=body.model or "",
            prompt=prompt,
            sampling=sampling,
            n=n,
            request_id=request_id if len(prompts) == 1 else f"{request_id}-{index}",
            tenant=body.tenant or "",
        )
        for index, prompt in enumerate(prompts)
    ]


def conversation(messages: Sequence[MessageBody], max_messages: int) -> ChatPrompt:
    """Return the prompt that a body's messages are.

    Raises:
        BatonError: there are more than `max_messages`; one has no content, or content that is no
            text.
    """
    check_messages(len(messages), max_messages)
    return ChatPrompt([_message(index, message) for index, message in enumerate(messages)])


def _message(index: int, message: MessageBody) -> Message:
    where = f"messages[{index}]"
    for name in ("tool_calls", "function_call", "audio"):
        if getattr(message, name):
            raise unsupported(f"{where}.{name}")
    content = message.content
    if content is None:
        raise invalid_field(f"{where}.content", "text is needed")
    if not isinstance(content, str):
        texts = []
        for at, part in enumerate(content):
            if part.type != "text":
                name = f"{where}.content[{at}].type"
                raise BatonError(
                    Reason.UNSUPPORTED_PARAMETER,
                    f"{name}: {part.type[:64]!r} is not supported; content is text",
                    field=name,
                )
            texts.append(part.text or "")
        content = "".join(texts)
    return Message(message.role, content, message.name or "")


def _prompts(raw: msgspec.Raw, n: int, max_outputs: int) -> list[Prompt]:
    """A string, a list of strings, token ids, or a list of lists of token ids."""
    data = bytes(raw).lstrip()
    inner = data[1:].lstrip()[:1] if data[:1] == b"[" else b""
    try:
        if data in (b"", b"null") or inner == b"]":
            return [TextPrompt("")]
        if inner == b'"':
            texts = _texts.decode(data)
            _check_outputs(len(texts), n, max_outputs)
            return [TextPrompt(text) for text in texts]
        if inner == b"[":
            id_lists = _id_lists.decode(data)
            _check_outputs(len(id_lists), n, max_outputs)
            return [TokenPrompt(ids) for ids in id_lists]
        if inner:
            return [TokenPrompt(_ids.decode(data))]
        return [TextPrompt(_text.decode(data))]
    except msgspec.ValidationError:
        raise invalid_field(
            "prompt", "a string, a list of strings, token ids, or a list of lists of token ids"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # its texts were not read before
        raise not_json(error) from None


def _check_outputs(prompts: int, n: int, max_outputs: int) -> None:
    if prompts * max(n, 1) > max_outputs and n <= max_outputs:
        raise invalid_field(
            "prompt", f"{prompts} prompts with n = {n}; prompts times n is at most {max_outputs}"
        )


def _sampling(body: Common, **other: Any) -> SamplingParams:
    """Return the parameters of a body; `other` are those that it has in another shape."""
    given = {each.name: getattr(body, each.name, None) for each in PARAMETERS} | other
    if given["top_k"] == -1:  # vLLM's other way to say all
        given["top_k"] = 0
    return SamplingParams.from_options(given)
