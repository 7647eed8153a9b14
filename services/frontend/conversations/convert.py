"""Conversion between the messages of ConversationService and what is stored."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.conversations.managed.records import ManagedConversation
from baton.errors import BatonError, Reason, invalid_field
from baton.v1 import conversations_pb2
from services.frontend.http.json_body import not_json
from services.frontend.http.query import DEFAULT_LIMIT, MAX_LIMIT
from services.frontend.http.values import check_values

_item = msgspec.json.Decoder(Any)


def items_of(given: Sequence[str], most_values: int) -> list[Any]:
    """Return items from their JSON; neither what they say nor their number is checked.

    Args:
        given: a JSON object each.
        most_values: allowed values of all of them.

    Raises:
        BatonError: MALFORMED_BODY: one is not JSON; BODY_TOO_LARGE: there are too many values.
    """
    check_values(b",".join(item.encode() for item in given), most_values)
    return [_decoded(text, f"items[{at}]") for at, text in enumerate(given)]


def limit_of(limit: int) -> int:
    """Return the most items of a page.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if not 0 <= limit <= MAX_LIMIT:
        raise invalid_field("limit", f"'{limit}' is not a whole number from 1 to {MAX_LIMIT}")
    return limit or DEFAULT_LIMIT


def conversation_message(found: ManagedConversation) -> conversations_pb2.Conversation:
    """Return a conversation as a message."""
    return conversations_pb2.Conversation(
        id=found.text,
        created_seconds=found.created_seconds,
        metadata=msgspec.json.decode(found.metadata),
    )


def item_message(body: str) -> conversations_pb2.ConversationItem:
    """Return an item as a message, from its body."""
    return conversations_pb2.ConversationItem(id=msgspec.json.decode(body)["id"], json=body)


def response_message(body: dict[str, Any]) -> conversations_pb2.StoredResponse:
    """Return a response as a message, from its body."""
    text = msgspec.json.encode(body).decode()
    return conversations_pb2.StoredResponse(id=body["id"], status=body["status"], json=text)


def _decoded(text: str, where: str) -> Any:
    try:
        return _item.decode(text)
    except msgspec.DecodeError as error:
        raise not_json(error, where) from None
    except RecursionError:
        raise BatonError(
            Reason.MALFORMED_BODY, f"{where} is nested too deeply", field=where
        ) from None
