"""The endpoints that lines of batches may name, and the check of a line's body for each."""

from collections.abc import Callable, Mapping

from baton.errors import BatonError
from services.frontend.openai.request.decode import read_chat, read_completion, read_tokenize
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.responses.parse import read_response
from services.frontend.requests.refusals import unsupported

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, TOKENIZE = "/v1/responses", "/v1/tokenize"
OPERATIONS = {
    CHAT: "chat",
    COMPLETIONS: "text_completion",
    RESPONSES: "responses",
    TOKENIZE: "tokenize",
}
"""Names of the requests in logs and usage records."""


def _check_chat(body: bytes, unknown: bool) -> str:
    return _checked(read_chat(body, unknown=unknown))


def _check_completion(body: bytes, unknown: bool) -> str:
    return _checked(read_completion(body, unknown=unknown))


def _checked(body: ChatBody | CompletionBody) -> str:
    refuse_stream(stream=body.stream)
    if isinstance(body, ChatBody) and body.store:
        raise _not_stored()
    return body.model or ""


def _check_response(body: bytes, unknown: bool) -> str:
    read = read_response(body, unknown=unknown)
    refuse_stream(stream=read.stream)
    if read.store:
        raise _not_stored()
    for field in ("background", "previous_response_id", "conversation"):
        if getattr(read, field):
            raise unsupported(field, why="lines of batches continue and store nothing; omit it")
    return read.model or ""


def _check_tokenize(body: bytes, unknown: bool) -> str:  # noqa: ARG001
    return read_tokenize(body).model or ""


ENDPOINTS: Mapping[str, Callable[[bytes, bool], str]] = {
    CHAT: _check_chat,
    COMPLETIONS: _check_completion,
    RESPONSES: _check_response,
    TOKENIZE: _check_tokenize,
}
"""Functions that return the model that a body names, and raise a BatonError if the body is wrong.
The second argument is whether fields that are not known are ignored."""


def refuse_stream(*, stream: bool | None) -> None:
    """Refuse a line that asks for a stream.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER.
    """
    if stream:
        raise unsupported("stream", why="lines of batches have whole responses; omit it")


def _not_stored() -> BatonError:
    return unsupported("store", why="lines of batches are not stored; omit it")
