"""The second pass over a body: refuse fields that are not supported, and those that do not go
together. The validator of `requests` checks values."""

from collections.abc import Iterable

import msgspec

from baton.errors import invalid_field
from services.frontend.openai.request.field import Body, Field
from services.frontend.openai.request.fields import fields_of
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.request.shape import refused
from services.frontend.requests.refusals import unsupported

_CHAT = refused(fields_of(Body.CHAT))
_COMPLETION = refused(fields_of(Body.COMPLETION))


def check_chat(body: ChatBody) -> None:
    """Check the fields of a chat completion.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER, a field is not served and asks for something;
            INVALID_FIELD, one does not go with another.
    """
    refuse_unsupported(body, _CHAT)
    if body.top_logprobs and not body.logprobs:
        raise invalid_field("top_logprobs", "requires logprobs to be true")
    _check_stream(body)


def check_completion(body: CompletionBody) -> None:
    """Check the fields of a text completion; errors as of `check_chat`."""
    refuse_unsupported(body, _COMPLETION)
    _check_stream(body)
    n = 1 if body.n is None else body.n
    if not body.best_of or body.best_of == n:
        return
    if body.best_of < n:
        raise invalid_field("best_of", f"{body.best_of} is out of range: at least n ({n})")
    if body.stream:
        raise invalid_field(
            "best_of",
            "cannot be combined with stream: the best outputs are known only at the end",
        )


def refuse_unsupported(body: msgspec.Struct, fields: Iterable[Field]) -> None:
    """Refuse fields, by name, unless they ask for nothing.

    Args:
        body: what was sent.
        fields: those that are not supported.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER.
    """
    for field in fields:
        value = getattr(body, field.name)
        if value is not None and value not in field.nothing:
            raise unsupported(field.name, why=field.note)


def _check_stream(body: ChatBody | CompletionBody) -> None:
    options = body.stream_options
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        raise invalid_field("stream_options.continuous_usage_stats", "requires include_usage")
    if body.stream and body.prompt_logprobs is not None:
        raise invalid_field("prompt_logprobs", "cannot be combined with stream")
