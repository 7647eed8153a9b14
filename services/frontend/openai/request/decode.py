"""The first pass over a body: JSON becomes the types of `schema`."""

import msgspec

from services.frontend.http.json_body import decode_body
from services.frontend.openai.request.checks import check_chat, check_completion
from services.frontend.openai.request.schema import (
    ANY_CHAT,
    ANY_COMPLETION,
    CHAT,
    COMPLETION,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
)

_chat = (msgspec.json.Decoder(CHAT), msgspec.json.Decoder(ANY_CHAT))
_completion = (msgspec.json.Decoder(COMPLETION), msgspec.json.Decoder(ANY_COMPLETION))
"""Without and with fields that are not known."""
_tokenize = msgspec.json.Decoder(TokenizeBody)
_detokenize = msgspec.json.Decoder(DetokenizeBody)


def read_chat(data: bytes, *, unknown: bool = False) -> ChatBody:
    """Decode the body of a chat completion.

    Args:
        data: the body.
        unknown: whether fields that are not known are ignored.

    Raises:
        BatonError: it is no JSON, a type is wrong, or a field is not known; or as of `check_chat`.
    """
    body = decode_body(_chat[unknown], data)
    check_chat(body)
    return body


def read_completion(data: bytes, *, unknown: bool = False) -> CompletionBody:
    """Decode the body of a text completion; the rest as of `read_chat`."""
    body = decode_body(_completion[unknown], data)
    check_completion(body)
    return body


def read_detokenize(data: bytes) -> DetokenizeBody:
    """Decode the body of a detokenize request; errors as of `read_chat`."""
    return decode_body(_detokenize, data)


def read_tokenize(data: bytes) -> TokenizeBody:
    """Decode the body of a tokenize request; errors as of `read_chat`."""
    return decode_body(_tokenize, data)
