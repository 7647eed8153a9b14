"""Handlers of stored responses: retrieve, delete, and list input items."""

from typing import Any

import msgspec

from baton.conversations.failures import not_enabled
from baton.conversations.ids import parse_item_id
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason, invalid_field
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.responses.background.handlers import BackgroundResponses
from services.frontend.openai.responses.item_list import item_list
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

_RETRIEVE = "include", "include_obfuscation", "stream", "starting_after"


class StoredResponses:
    """Serve responses that were stored. One object per frontend.

    Args:
        store: None: nothing is stored.
        background: responses that run; None: nothing is stored.
    """

    def __init__(
        self, store: ConversationStore | None, background: BackgroundResponses | None = None
    ) -> None:
        self._store = store
        self._background = background

    async def get(self, who: StateScope, ident: str) -> dict[str, Any]:
        """Return a response, whether it runs or has ended.

        Raises:
            BatonError: UNIMPLEMENTED: nothing is stored; NOT_FOUND; UNAVAILABLE.
        """
        store, background = self._asked()
        with store.database.budget():
            try:
                response = await store.response(who, ident)
            except BatonError as error:
                if error.reason is not Reason.NOT_FOUND:
                    raise
                running = await background.running(who, ident)
                if running is not None:
                    return running
                response = await store.response(who, ident)  # it may have ended in between
            output = await store.output_items(who, response)
        body: dict[str, Any] = msgspec.json.decode(response.body)
        body["output"] = [msgspec.Raw(item.body.encode()) for item in output]
        return body

    async def end(self, who: StateScope, ident: str) -> dict[str, Any]:
        """End a response in the background, and return it. One that has ended stays as it is.

        Raises:
            BatonError: as of `get`; FAILED_PRECONDITION: it is not in the background.
        """
        store, background = self._asked()
        if not await background.end(who, ident):
            response = await store.response(who, ident)
            if not msgspec.json.decode(response.body)["background"]:
                raise BatonError(
                    Reason.FAILED_PRECONDITION, "only responses in the background can be cancelled"
                )
        return await self.get(who, ident)

    async def remove(self, who: StateScope, ident: str) -> None:
        """Delete a response; errors as of `get`."""
        store, background = self._asked()
        await background.end(who, ident)
        with store.database.budget():
            await store.delete_response(who, ident)
            await background.delete_events(who, ident)

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return a stored response, or the events of one in the background again."""
        (_store, background), who = self._asked(), scope_of(record.current().principal)
        query = QueryString(scope["query_string"], _RETRIEVE)
        (ident,) = scope["path_params"]
        body = await self.get(who, ident)
        if query.one_of("stream", ("false", "true")) == "true":
            await background.stream(who, ident, query, connection_of(scope), send)
        else:
            await send_json(send, body)

    async def cancel(self, scope: Scope, _: Receive, send: Send) -> None:
        """End a response in the background. One that has ended stays as it is."""
        (ident,) = scope["path_params"]
        await send_json(send, await self.end(scope_of(record.current().principal), ident))

    async def delete(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete a stored response; its items stay while a later response continues it. One that
        runs is cancelled first."""
        (ident,) = scope["path_params"]
        await self.remove(scope_of(record.current().principal), ident)
        await send_json(send, {"id": ident, "object": "response", "deleted": True})

    async def input_items(self, scope: Scope, __: Receive, send: Send) -> None:
        """List the input items of a stored response."""
        (store, _), who = self._asked(), scope_of(record.current().principal)
        query = QueryString(scope["query_string"], ("after", "limit", "order", "include"))
        order, limit = query.one_of("order", ("desc", "asc")), query.limit()
        after = query.text("after")
        (ident,) = scope["path_params"]
        with store.database.budget():
            items = await store.input_items(who, await store.response(who, ident))
        if order == "desc":
            items.reverse()
        if after:
            last = parse_item_id(after)
            places = [at for at, item in enumerate(items) if item.id == last]
            if not places:
                raise invalid_field("after", f"{after[:64]!r} is not an input item of the response")
            items = items[places[0] + 1 :]
        page = [item.body for item in items[:limit]]
        await send_json(send, item_list(page, more=len(items) > limit))

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        one = "/v1/responses/{response_id}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        return [
            Route("GET", one, "stored_responses", self.retrieve, read),
            Route("DELETE", one, "stored_responses", self.delete, write),
            Route("POST", f"{one}/cancel", "stored_responses", self.cancel, write),
            Route("GET", f"{one}/input_items", "stored_responses", self.input_items, read),
        ]

    def _asked(self) -> tuple[ConversationStore, BackgroundResponses]:
        if self._store is None or self._background is None:
            raise not_enabled("responses")
        return self._store, self._background
