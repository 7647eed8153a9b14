"""What calls about conversations return."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baton.v1 import conversations_pb2


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation without its items."""

    id: str
    created_seconds: int
    """Seconds since the Unix epoch."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ItemPage:
    """A page of a conversation's items."""

    items: tuple[dict[str, Any], ...]
    """The items in OpenAI's form, with their ids."""
    has_more: bool
    """Whether there are further ones: pass the last item's id as `after`."""


def conversation_of(response: Any) -> StoredConversation:
    """Return the conversation of a response that has one."""
    found: conversations_pb2.Conversation = response.conversation
    return StoredConversation(found.id, found.created_seconds, dict(found.metadata))


def items_of(response: conversations_pb2.AddItemsResponse) -> tuple[dict[str, Any], ...]:
    """Return the items of a response."""
    return tuple(json.loads(item.json) for item in response.items)


def page_of(response: conversations_pb2.ListItemsResponse) -> ItemPage:
    """Return the page of a response."""
    items = tuple(json.loads(item.json) for item in response.items)
    return ItemPage(items, response.has_more)


def item_of(response: conversations_pb2.GetItemResponse) -> dict[str, Any]:
    """Return the item of a response."""
    found: dict[str, Any] = json.loads(response.item.json)
    return found


def stored_of(response: Any) -> dict[str, Any]:
    """Return the stored response of a response that has one, in OpenAI's form."""
    found: dict[str, Any] = json.loads(response.response.json)
    return found


def nothing(response: object) -> None:
    """Return nothing of a response without fields."""
    del response
