"""Handlers of `/v1/conversations`."""

import time

import msgspec

from baton.conversations.failures import not_enabled
from baton.conversations.ids import parse_item_id
from baton.conversations.managed.conversations import ManagedConversations
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.errors import invalid_field
from baton.settings import FrontendLimits, HttpSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_bytes, send_json
from services.frontend.http.routes import Route
from services.frontend.openai.body import read_body
from services.frontend.openai.conversations.bodies import (
    bodies_of,
    conversation_object,
    read_conversation,
    read_items,
    read_message,
    read_metadata,
)
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.item_list import item_list
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

_OPERATION = "conversations"
_JSON = ((b"content-type", b"application/json"),)


class ConversationHandlers:
    """Serve conversations that clients manage. One object per frontend, on the loop's thread.

    Args:
        store: None: nothing is stored.
        responses: respond to messages.
        settings: bounds of bodies.
        limits: of requests.
    """

    def __init__(
        self,
        store: ConversationStore | None,
        responses: ResponsesHandlers,
        settings: HttpSettings,
        limits: FrontendLimits,
    ) -> None:
        self._store = store
        self._responses = responses
        self._settings = settings
        self._limits = limits

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a conversation, with up to 20 items."""
        managed, body = self._managed(), read_conversation(await self._body(scope, receive))
        items, metadata = body.items or [], msgspec.json.encode(body.metadata or {}).decode()
        found = await managed.create(_who(), metadata, bodies_of(items), len(items), _now_ms())
        await send_json(send, conversation_object(found))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return a conversation."""
        (ident,) = scope["path_params"]
        await send_json(send, conversation_object(await self._managed().get(_who(), ident)))

    async def update(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replace the metadata of a conversation."""
        (ident,) = scope["path_params"]
        managed, metadata = self._managed(), read_metadata(await self._body(scope, receive))
        await send_json(send, conversation_object(await managed.update(_who(), ident, metadata)))

    async def delete(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete a conversation with its items and responses."""
        (ident,) = scope["path_params"]
        await self._managed().delete(_who(), ident)
        await send_json(send, {"id": ident, "object": "conversation.deleted", "deleted": True})

    async def add_items(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add up to 20 items to a conversation."""
        (ident,) = scope["path_params"]
        managed, given = self._managed(), read_items(await self._body(scope, receive))
        QueryString(scope["query_string"], ("include",))
        bodies = bodies_of(given)
        block = await managed.add(_who(), ident, bodies, len(given), _now_ms())
        await send_json(send, item_list(bodies(block), more=False))

    async def list_items(self, scope: Scope, _: Receive, send: Send) -> None:
        """List the items of a conversation."""
        (ident,) = scope["path_params"]
        managed = self._managed()
        query = QueryString(scope["query_string"], ("after", "limit", "order", "include"))
        order, limit = query.one_of("order", ("desc", "asc")), query.limit()
        after = query.text("after")
        found = await managed.get(_who(), ident)
        last = parse_item_id(after) if after else None
        if after and (last is None or not found.id < last <= found.last_item):
            raise invalid_field("after", f"{after[:64]!r} is not an item of the conversation")
        items = await managed.page(_who(), found, limit + 1, last, newest_first=order == "desc")
        await send_json(
            send, item_list([item.body for item in items[:limit]], more=len(items) > limit)
        )

    async def retrieve_item(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return an item of a conversation."""
        ident, item = scope["path_params"]
        managed = self._managed()
        QueryString(scope["query_string"], ("include",))
        body = await managed.item(_who(), ident, parse_item_id(item), item)
        await send_bytes(send, body.encode(), 200, _JSON)

    async def delete_item(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete an item of a conversation; return the conversation."""
        ident, item = scope["path_params"]
        found = await self._managed().delete_item(_who(), ident, parse_item_id(item), item)
        await send_json(send, conversation_object(found))

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a user's message in a conversation, as one body or as server-sent events."""
        (ident,) = scope["path_params"]
        managed = self._managed()
        record.current().principal.require(KeyScope.STATE_READ)
        body, has_model = read_message(await self._body(scope, receive), ident)
        if not has_model:
            found = await managed.get(_who(), ident)
            last = await managed.last_response(_who(), found)
            if last is None:
                raise invalid_field("model", "the conversation has no response yet; name a model")
            said = msgspec.json.decode(last)
            body["model"] = said["baton"].get("requested_model") or said["model"]
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

    def _managed(self) -> ManagedConversations:
        if self._store is None:
            raise not_enabled("conversations")
        return self._store.managed


def _who() -> StateScope:
    """Return whose rows the caller reads and writes."""
    return scope_of(record.current().principal)


def _now_ms() -> int:
    return int(time.time() * 1000)
