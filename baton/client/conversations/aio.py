"""`AsyncClient.conversations`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack

from baton.client.conversations import calls
from baton.client.conversations.calls import ConversationCall
from baton.client.conversations.message import MessageOptions
from baton.client.conversations.records import ItemPage, StoredConversation
from baton.client.requests import PicturePart, TextPart
from baton.client.stream import AsyncStream

T = TypeVar("T")


class RunAsyncCall(Protocol):
    """Runs a call."""

    async def __call__(self, call: ConversationCall[T], timeout: float | None) -> T: ...


Send = Callable[[str, str | Sequence[TextPart | PicturePart], MessageOptions], AsyncStream]
"""Returns the stream of a message in a conversation."""


class AsyncConversations:
    """`Conversations` for asyncio."""

    def __init__(self, run: RunAsyncCall, send: Send) -> None:
        """Take what runs calls, and what sends messages."""
        self._run = run
        self._send = send

    async def create(
        self,
        items: Sequence[Mapping[str, Any]] = (),
        metadata: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> StoredConversation:
        """Create a conversation with up to 20 items in OpenAI's form."""
        return await self._run(calls.create(items, metadata), timeout)

    async def get(self, conversation: str, *, timeout: float | None = None) -> StoredConversation:
        """Return a conversation."""
        return await self._run(calls.get(conversation), timeout)

    async def update(
        self, conversation: str, metadata: Mapping[str, str], *, timeout: float | None = None
    ) -> StoredConversation:
        """Replace the metadata of a conversation."""
        return await self._run(calls.update(conversation, metadata), timeout)

    async def delete(self, conversation: str, *, timeout: float | None = None) -> None:
        """Delete a conversation with its items and responses."""
        await self._run(calls.delete(conversation), timeout)

    async def add_items(
        self,
        conversation: str,
        items: Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = None,
    ) -> tuple[dict[str, Any], ...]:
        """Add up to 20 items after all others; return them with their ids."""
        return await self._run(calls.add_items(conversation, items), timeout)

    async def list_items(
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
        return await self._run(call, timeout)

    async def get_item(
        self, conversation: str, item: str, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return an item."""
        return await self._run(calls.get_item(conversation, item), timeout)

    async def delete_item(
        self, conversation: str, item: str, *, timeout: float | None = None
    ) -> StoredConversation:
        """Delete an item; return its conversation."""
        return await self._run(calls.delete_item(conversation, item), timeout)

    def send(
        self,
        conversation: str,
        content: str | Sequence[TextPart | PicturePart] = "",
        **options: Unpack[MessageOptions],
    ) -> AsyncStream:
        """Send a user's message; the stream's `started.response_id` names the response."""
        return self._send(conversation, content, options)

    async def get_response(self, response: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Return a stored response in OpenAI's form."""
        return await self._run(calls.get_response(response), timeout)

    async def cancel_response(
        self, response: str, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """End a response that runs in the background, and return it."""
        return await self._run(calls.cancel_response(response), timeout)

    async def delete_response(self, response: str, *, timeout: float | None = None) -> None:
        """Delete a stored response."""
        await self._run(calls.delete_response(response), timeout)
