"""Handlers of `/v1/conversations`."""

import msgspec

from baton.conversations.records import StateScope
from baton.settings import FrontendLimits, HttpSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_bytes, send_json
from services.frontend.http.routes import Route
from services.frontend.openai.body import read_body
from services.frontend.openai.conversations.bodies import (
    conversation_object,
    read_conversation,
    read_items,
    read_message,
    read_metadata,
)
from services.frontend.openai.conversations.operations import ConversationOperations
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.item_list import item_list
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

_OPERATION = "conversations"
_JSON = ((b"content-type", b"application/json"),)


class ConversationHandlers:
    """Serve conversations that clients manage. One object per frontend, on the loop's thread.

    Args:
        operations: what they do.
        responses: respond to messages.
        settings: bounds of bodies.
        limits: of requests.
    """

    def __init__(
        self,
        operations: ConversationOperations,
        responses: ResponsesHandlers,
        settings: HttpSettings,
        limits: FrontendLimits,
    ) -> None:
        self._operations = operations
        self._responses = responses
        self._settings = settings
        self._limits = limits

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a conversation, with up to 20 items."""
        operations = self._enabled()
        body = read_conversation(await self._body(scope, receive))
        found = await operations.create(record.current().principal, body)
        await send_json(send, conversation_object(found))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return a conversation."""
        (ident,) = scope["path_params"]
        found = await self._operations.managed.get(_who(), ident)
        await send_json(send, conversation_object(found))

    async def update(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replace the metadata of a conversation."""
        (ident,) = scope["path_params"]
        managed = self._operations.managed
        metadata = read_metadata(await self._body(scope, receive))
        await send_json(send, conversation_object(await managed.update(_who(), ident, metadata)))

    async def delete(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete a conversation with its items and responses."""
        (ident,) = scope["path_params"]
        await self._operations.managed.delete(_who(), ident)
        await send_json(send, {"id": ident, "object": "conversation.deleted", "deleted": True})

    async def add_items(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add up to 20 items to a conversation."""
        (ident,) = scope["path_params"]
        operations, given = self._enabled(), read_items(await self._body(scope, receive))
        QueryString(scope["query_string"], ("include",))
        added = await operations.add(record.current().principal, ident, given)
        await send_json(send, item_list(added, more=False))

    async def list_items(self, scope: Scope, _: Receive, send: Send) -> None:
        """List the items of a conversation."""
        (ident,) = scope["path_params"]
        operations = self._enabled()
        query = QueryString(scope["query_string"], ("after", "limit", "order", "include"))
        newest_first = query.one_of("order", ("desc", "asc")) == "desc"
        limit, after = query.limit(), query.text("after")
        bodies, more = await operations.page(_who(), ident, after, limit, newest_first=newest_first)
        await send_json(send, item_list(bodies, more=more))

    async def retrieve_item(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return an item of a conversation."""
        ident, item = scope["path_params"]
        operations = self._enabled()
        QueryString(scope["query_string"], ("include",))
        body = await operations.item(_who(), ident, item)
        await send_bytes(send, body.encode(), 200, _JSON)

    async def delete_item(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete an item of a conversation; return the conversation."""
        ident, item = scope["path_params"]
        found = await self._operations.delete_item(_who(), ident, item)
        await send_json(send, conversation_object(found))

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a user's message in a conversation, as one body or as server-sent events."""
        (ident,) = scope["path_params"]
        operations = self._enabled()
        record.current().principal.require(KeyScope.STATE_READ)
        body = read_message(await self._body(scope, receive), ident)
        await operations.add_model(_who(), ident, body)
        await self._responses.respond(scope, send, msgspec.json.encode(body))

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        all_, one = "/v1/conversations", "/v1/conversations/{conversation_id}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        items, item = f"{one}/items", f"{one}/items/{{item_id}}"
        return [
            Route("POST", all_, _OPERATION, self.create, write),
            Route("GET", one, _OPERATION, self.retrieve, read),
            Route("POST", one, _OPERATION, self.update, write),
            Route("DELETE", one, _OPERATION, self.delete, write),
            Route("POST", items, _OPERATION, self.add_items, write),
            Route("GET", items, _OPERATION, self.list_items, read),
            Route("GET", item, _OPERATION, self.retrieve_item, read),
            Route("DELETE", item, _OPERATION, self.delete_item, write),
            Route("POST", f"{one}/messages", "responses", self.message),
        ]

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        return await read_body(scope, receive, self._settings, self._limits)

    def _enabled(self) -> ConversationOperations:
        """Return the operations, before anything of a request is looked at.

        Raises:
            BatonError: UNIMPLEMENTED: nothing is stored.
        """
        self._operations.require_enabled()
        return self._operations


def _who() -> StateScope:
    """Return whose rows the caller reads and writes."""
    return scope_of(record.current().principal)
