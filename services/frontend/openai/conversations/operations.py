"""What clients do with conversations, over HTTP and gRPC alike."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from baton.conversations.failures import not_enabled
from baton.conversations.ids import parse_item_id
from baton.conversations.managed.conversations import ManagedConversations
from baton.conversations.managed.records import ManagedConversation
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.errors import invalid_field
from baton.tenancy.directory.principal import Principal
from services.frontend.openai.conversations.bodies import CreateConversation, bodies_of
from services.frontend.openai.responses.input.items import check_items
from services.frontend.openai.responses.input.sealing import ItemSeals
from services.frontend.openai.responses.storing import limits_of, scope_of


class ConversationOperations:
    """Creates, reads and changes conversations. One object per frontend, on the loop's thread.

    What an operation waits for the database, in all of its statements, is bounded.

    Values were checked by `bodies`. Errors, besides those that a method names: BatonError
    UNIMPLEMENTED, if nothing is stored; NOT_FOUND; UNAVAILABLE.

    Args:
        store: None: nothing is stored.
        seals: of reasoning and summaries.
    """

    def __init__(self, store: ConversationStore | None, seals: ItemSeals) -> None:
        self._store = store
        self._seals = seals

    @property
    def managed(self) -> ManagedConversations:
        """The stored conversations."""
        if self._store is None:
            raise not_enabled("conversations")
        return self._store.managed

    def _budget(self) -> AbstractContextManager[None]:
        if self._store is None:
            raise not_enabled("conversations")
        return self._store.database.budget()

    def require_enabled(self) -> None:
        """Raise UNIMPLEMENTED if nothing is stored."""
        if self._store is None:
            raise not_enabled("conversations")

    async def create(self, who: Principal, body: CreateConversation) -> ManagedConversation:
        """Create a conversation.

        Raises:
            BatonError: INVALID_FIELD: an item is not sealed for the tenant; INSUFFICIENT_QUOTA.
        """
        await self._check_seals(who, body.items or ())
        items, metadata = body.items or [], msgspec.json.encode(body.metadata or {}).decode()
        counted = bodies_of(items), len(items), _now_ms()
        with self._budget():
            return await self.managed.create(scope_of(who), metadata, *counted, limits_of(who))

    async def add(self, who: Principal, ident: str, items: list[Any]) -> list[str]:
        """Add items to a conversation, and return their bodies.

        Raises:
            BatonError: INVALID_FIELD: there are too many, or one is not sealed for the tenant;
                CONVERSATION_LOCKED; INSUFFICIENT_QUOTA.
        """
        await self._check_seals(who, items)
        bodies = bodies_of(items)
        counted = bodies, len(items), _now_ms()
        with self._budget():
            block = await self.managed.add(scope_of(who), ident, *counted, limits_of(who))
        return list(bodies(block))

    async def page(
        self, scope: StateScope, ident: str, after: str, limit: int, *, newest_first: bool
    ) -> tuple[list[str], bool]:
        """Return the bodies of a page of items, and whether there are further ones.

        Args:
            scope: whose it is.
            ident: of the conversation.
            after: the last item of the page before; empty: the first page.
            limit: the most items.
            newest_first: their order.

        Raises:
            BatonError: INVALID_FIELD: `after` is not an item of the conversation.
        """
        last, order = parse_item_id(after) if after else None, newest_first
        with self._budget():
            found = await self.managed.get(scope, ident)
            if after and (last is None or not found.id < last <= found.last_item):
                raise invalid_field("after", f"{after[:64]!r} is not an item of the conversation")
            items = await self.managed.page(scope, found, limit + 1, last, newest_first=order)
        return [item.body for item in items[:limit]], len(items) > limit

    async def item(self, scope: StateScope, ident: str, item: str) -> str:
        """Return the body of an item."""
        with self._budget():
            return await self.managed.item(scope, ident, parse_item_id(item), item)

    async def delete_item(self, scope: StateScope, ident: str, item: str) -> ManagedConversation:
        """Delete an item; return its conversation."""
        with self._budget():
            return await self.managed.delete_item(scope, ident, parse_item_id(item), item)

    async def add_model(self, scope: StateScope, ident: str, body: dict[str, Any]) -> None:
        """Let the model of the conversation's last response answer a message that names none.

        Raises:
            BatonError: INVALID_FIELD: it has no response.
        """
        if body.get("model"):
            return
        managed = self.managed
        with self._budget():
            last = await managed.last_response(scope, await managed.get(scope, ident))
        if last is None:
            raise invalid_field("model", "the conversation has no response yet; name a model")
        said = msgspec.json.decode(last)
        body["model"] = said["baton"].get("requested_model") or said["model"]

    async def _check_seals(self, who: Principal, items: Sequence[Any]) -> None:
        """Check what is sealed in items: a turn that reads it later would be refused."""
        self.require_enabled()
        seal = await self._seals.needed(who.tenant.id, None, items)
        if seal is not None:
            check_items(items, "items", seal)


def _now_ms() -> int:
    return int(time.time() * 1000)
