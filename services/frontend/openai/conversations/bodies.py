"""Bodies of requests about conversations, and the objects of their responses."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from baton.conversations.ids import item_text, nth
from baton.conversations.managed.conversations import Bodies
from baton.conversations.managed.records import MAX_ITEMS_AT_ONCE, ManagedConversation
from baton.errors import BatonError, Reason, invalid_field
from services.frontend.http.json_body import decode_body
from services.frontend.openai.metadata import check_metadata
from services.frontend.openai.responses.input.items import check_items
from services.frontend.openai.responses.storing import input_items

_CONTENT = "must be a text, or a list of parts"
_IN_PATH = "is in the path"


class CreateConversation(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Any] | None = None
    metadata: dict[str, str] | None = None


class UpdateConversation(msgspec.Struct, forbid_unknown_fields=True):
    metadata: dict[str, str] | None


class CreateItems(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Any]


_create = msgspec.json.Decoder(CreateConversation)
_update = msgspec.json.Decoder(UpdateConversation)
_items = msgspec.json.Decoder(CreateItems)
_message = msgspec.json.Decoder(dict[str, Any])


def read_conversation(data: bytes) -> CreateConversation:
    """Decode a new conversation.

    Raises:
        BatonError: it is malformed, or beyond a limit.
    """
    return checked_conversation(decode_body(_create, data))


def checked_conversation(body: CreateConversation) -> CreateConversation:
    """Return a new conversation that is within limits; errors as of `read_conversation`."""
    check_metadata(body.metadata or {})
    _check_new(body.items or ())
    return body


def read_metadata(data: bytes) -> str:
    """Return the new metadata of a conversation, as JSON; errors as of `read_conversation`."""
    return checked_metadata(decode_body(_update, data).metadata or {})


def checked_metadata(metadata: dict[str, str]) -> str:
    """Return metadata as JSON; errors as of `read_conversation`."""
    check_metadata(metadata)
    return msgspec.json.encode(metadata).decode()


def read_items(data: bytes) -> list[Any]:
    """Return new items of a conversation; errors as of `read_conversation`."""
    return checked_items(decode_body(_items, data).items)


def checked_items(items: list[Any]) -> list[Any]:
    """Return new items that are within limits; errors as of `read_conversation`."""
    if not items:
        raise invalid_field("items", "must be a list of at least one item")
    _check_new(items)
    return items


def read_message(data: bytes, conversation: str) -> dict[str, Any]:
    """Return the body of the response to a message; arguments and errors as of `message_body`.

    Args:
        data: the message.
        conversation: its id.
    """
    return message_body(decode_body(_message, data), conversation)


def message_body(
    body: dict[str, Any], conversation: str, before: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return the body of the response to a message.

    Args:
        body: `content`, and fields of a response other than those that say what it continues.
        conversation: its id.
        before: items before the message; with some, it may have no content.

    Raises:
        BatonError: it is malformed, or has no content.
    """
    for field, why in (
        ("input", "send content"),
        ("conversation", _IN_PATH),
        ("previous_response_id", "the conversation is what the message continues"),
    ):
        if body.get(field) is not None:
            raise BatonError(Reason.UNSUPPORTED_PARAMETER, f"{field}: {why}", field=field)
    content = body.pop("content", None)
    body["input"] = list(before)
    if content or not before:
        if not isinstance(content, str | list) or not content:
            raise invalid_field("content", _CONTENT)
        body["input"].append({"type": "message", "role": "user", "content": content})
    body["conversation"] = conversation
    return body


def bodies_of(given: Sequence[Any]) -> Bodies:
    """Return what makes the stored form of items, with their ids."""

    def bodies(block: UUID) -> list[str]:
        return [
            msgspec.json.encode(item | {"id": item_text(item, nth(block, at))}).decode()
            for at, item in enumerate(input_items(list(given)), 1)
        ]

    return bodies


def conversation_object(found: ManagedConversation) -> dict[str, Any]:
    """Return a conversation in OpenAI's form."""
    return {
        "id": found.text,
        "object": "conversation",
        "created_at": found.created_seconds,
        "metadata": msgspec.Raw(found.metadata.encode()),
    }


def _check_new(items: Sequence[Any]) -> None:
    if len(items) > MAX_ITEMS_AT_ONCE:
        raise invalid_field(
            "items", f"{len(items)} items exceed the limit of {MAX_ITEMS_AT_ONCE} at once"
        )
    check_items(items, "items")
