"""The unary calls about conversations: their requests, and what their responses are. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from baton.client.conversations.records import (
    ItemPage,
    StoredConversation,
    conversation_of,
    item_of,
    items_of,
    nothing,
    page_of,
    stored_of,
)
from baton.v1 import conversations_pb2 as pb

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConversationCall(Generic[T]):
    """A call."""

    method: str
    request: Any
    read: Callable[[Any], T]
    """Returns what a response is for the user."""
    repeatable: bool = True
    """Whether a second call does no harm if the first one ran."""


def create(
    items: Sequence[Mapping[str, Any]], metadata: Mapping[str, str] | None
) -> ConversationCall[StoredConversation]:
    """Return the call that creates a conversation."""
    request = pb.CreateConversationRequest(items=json_items(items), metadata=metadata or {})
    return ConversationCall("CreateConversation", request, conversation_of, repeatable=False)


def get(conversation: str) -> ConversationCall[StoredConversation]:
    """Return the call that reads a conversation."""
    request = pb.GetConversationRequest(conversation_id=conversation)
    return ConversationCall("GetConversation", request, conversation_of)


def update(conversation: str, metadata: Mapping[str, str]) -> ConversationCall[StoredConversation]:
    """Return the call that replaces metadata."""
    request = pb.UpdateConversationRequest(conversation_id=conversation, metadata=metadata)
    return ConversationCall("UpdateConversation", request, conversation_of)


def delete(conversation: str) -> ConversationCall[None]:
    """Return the call that deletes a conversation."""
    request = pb.DeleteConversationRequest(conversation_id=conversation)
    return ConversationCall("DeleteConversation", request, nothing, repeatable=False)


def add_items(
    conversation: str, items: Sequence[Mapping[str, Any]]
) -> ConversationCall[tuple[dict[str, Any], ...]]:
    """Return the call that adds items."""
    request = pb.AddItemsRequest(conversation_id=conversation, items=json_items(items))
    return ConversationCall("AddItems", request, items_of, repeatable=False)


def list_items(
    conversation: str, after: str, limit: int, *, ascending: bool
) -> ConversationCall[ItemPage]:
    """Return the call that lists items."""
    request = pb.ListItemsRequest(
        conversation_id=conversation, after=after, limit=limit, ascending=ascending
    )
    return ConversationCall("ListItems", request, page_of)


def get_item(conversation: str, item: str) -> ConversationCall[dict[str, Any]]:
    """Return the call that reads an item."""
    request = pb.GetItemRequest(conversation_id=conversation, item_id=item)
    return ConversationCall("GetItem", request, item_of)


def delete_item(conversation: str, item: str) -> ConversationCall[StoredConversation]:
    """Return the call that deletes an item."""
    request = pb.DeleteItemRequest(conversation_id=conversation, item_id=item)
    return ConversationCall("DeleteItem", request, conversation_of, repeatable=False)


def get_response(response: str) -> ConversationCall[dict[str, Any]]:
    """Return the call that reads a stored response."""
    request = pb.GetResponseRequest(response_id=response)
    return ConversationCall("GetResponse", request, stored_of)


def cancel_response(response: str) -> ConversationCall[dict[str, Any]]:
    """Return the call that ends a response in the background."""
    request = pb.CancelResponseRequest(response_id=response)
    return ConversationCall("CancelResponse", request, stored_of)


def delete_response(response: str) -> ConversationCall[None]:
    """Return the call that deletes a stored response."""
    request = pb.DeleteResponseRequest(response_id=response)
    return ConversationCall("DeleteResponse", request, nothing, repeatable=False)


def json_items(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return items as they are on the wire."""
    return [json.dumps(item) for item in items]
