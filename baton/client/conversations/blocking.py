"""`Client.conversations`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack

from baton.client.conversations import calls
from baton.client.conversations.calls import ConversationCall
from baton.client.conversations.message import MessageOptions
from baton.client.conversations.records import ItemPage, StoredConversation
from baton.client.requests import PicturePart, TextPart
from baton.client.stream import Stream

T = TypeVar("T")


class RunCall(Protocol):
    """Runs a call."""

    def __call__(self, call: ConversationCall[T], timeout: float | None) -> T: ...


Send = Callable[[str, str | Sequence[TextPart | PicturePart], MessageOptions], Stream]
"""Returns the stream of a message in a conversation."""


class Conversations:
    """Stored conversations of a client; threads may share it."""

    def __init__(self, run: RunCall, send: Send) -> None:
        """Take what runs calls, and what sends messages."""
        self._run = run
        self._send = send

    def create(
        self,
        items: Sequence[Mapping[str, Any]] = (),
        metadata: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> StoredConversation:
        """Create a conversation with up to 20 items in OpenAI's form."""
        return self._run(calls.create(items, metadata), timeout)

    def get(self, conversation: str, *, timeout: float | None = None) -> StoredConversation:
        """Return a conversation."""
        return self._run(calls.get(conversation), timeout)

    def update(
        self, conversation: str, metadata: Mapping[str, str], *, timeout: float | None = None
    ) -> StoredConversation:
        """Replace the metadata of a conversation."""
        return self._run(calls.update(conversation, metadata), timeout)

    def delete(self, conversation: str, *, timeout: float | None = None) -> None:
        """Delete a conversation with its items and responses."""
        self._run(calls.delete(conversation), timeout)

    def add_items(
        self,
        conversation: str,
        items: Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = None,
    ) -> tuple[dict[str, Any], ...]:
        """Add up to 20 items after all others; return them with their ids."""
        return self._run(calls.add_items(conversation, items), timeout)

    def list_items(
        self,
        conversation: str,
        *,
        after: str = "",
        limit: int = 0,
        ascending: bool = False,
        timeout: float | None = None,
    ) -> ItemPage:
        """Return a page of items, the newest first unless `ascending`; `limit` 0 means 20."""
        call = calls.list_items(conversation, after, limit, ascending=ascending)
        return self._run(call, timeout)

    def get_item(
        self, conversation: str, item: str, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return an item."""
        return self._run(calls.get_item(conversation, item), timeout)

    def delete_item(
        self, conversation: str, item: str, *, timeout: float | None = None
    ) -> StoredConversation:
        """Delete an item; return its conversation."""
        return self._run(calls.delete_item(conversation, item), timeout)

    def send(
        self,
        conversation: str,
        content: str | Sequence[TextPart | PicturePart] = "",
        **options: Unpack[MessageOptions],
    ) -> Stream:
        """Send a user's message; the stream's `started.response_id` names the response."""
        return self._send(conversation, content, options)

    def get_response(self, response: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Return a stored response in OpenAI's form."""
        return self._run(calls.get_response(response), timeout)

    def cancel_response(self, response: str, *, timeout: float | None = None) -> dict[str, Any]:
        """End a response that runs in the background, and return it."""
        return self._run(calls.cancel_response(response), timeout)

    def delete_response(self, response: str, *, timeout: float | None = None) -> None:
        """Delete a stored response."""
        self._run(calls.delete_response(response), timeout)
