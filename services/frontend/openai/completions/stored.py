"""Handlers of stored chat completions."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.conversations.completions.records import (
    CompletionFilter,
    FoundCompletion,
    completion_text,
    parse_completion,
)
from baton.conversations.completions.store import CompletionStore
from baton.conversations.failures import not_enabled
from baton.errors import invalid_field
from baton.settings import FrontendLimits, HttpSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.json_body import decode_body
from services.frontend.http.pages import page
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.body import read_body
from services.frontend.openai.metadata import check_metadata
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

_PAGE = "after", "limit", "order"


class CompletionUpdate(msgspec.Struct, forbid_unknown_fields=True):
    metadata: dict[str, str] | None


_update = msgspec.json.Decoder(CompletionUpdate)


class StoredCompletions:
    """Serve chat completions that were stored. One object per frontend.

    Args:
        store: None: nothing is stored.
        settings: bounds of bodies.
        limits: of requests.
    """

    def __init__(
        self, store: CompletionStore | None, settings: HttpSettings, limits: FrontendLimits
    ) -> None:
        self._store = store
        self._settings = settings
        self._limits = limits

    async def list(self, scope: Scope, _: Receive, send: Send) -> None:
        """List stored chat completions, oldest first."""
        store, who = self._asked(), scope_of(record.current().principal)
        query = QueryString(scope["query_string"], (*_PAGE, "model"), ("metadata",))
        limit, descending = query.limit(), query.one_of("order", ("asc", "desc")) == "desc"
        only = CompletionFilter(query.text("model"), check_metadata(query.mapping("metadata")))
        after = query.text("after")
        last = parse_completion(after)
        if after and last is None:
            raise invalid_field("after", f"{after[:64]!r} is not the id of a stored completion")
        found = await store.list(who, only, limit + 1, last, descending=descending)
        shown = found[:limit]
        ids = [completion_text(one.id) for one in shown]
        bodies = [_body(one) for one in shown]
        await send_json(send, page(bodies, ids, has_more=len(found) > limit))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return a stored chat completion."""
        (ident,) = scope["path_params"]
        found = await self._asked().get(scope_of(record.current().principal), ident)
        await send_json(send, _body(found))

    async def update(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replace the metadata of a stored chat completion."""
        (ident,) = scope["path_params"]
        data = await read_body(scope, receive, self._settings, self._limits)
        metadata = check_metadata(decode_body(_update, data).metadata)
        who = scope_of(record.current().principal)
        await send_json(send, _body(await self._asked().update(who, ident, metadata)))

    async def delete(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete a stored chat completion."""
        (ident,) = scope["path_params"]
        await self._asked().delete(scope_of(record.current().principal), ident)
        deleted = {"object": "chat.completion.deleted", "id": ident, "deleted": True}
        await send_json(send, deleted)

    async def messages(self, scope: Scope, _: Receive, send: Send) -> None:
        """List the messages of a stored chat completion's request."""
        query = QueryString(scope["query_string"], _PAGE)
        limit, order = query.limit(), query.one_of("order", ("asc", "desc"))
        (ident,) = scope["path_params"]
        messages = await self._asked().messages(scope_of(record.current().principal), ident)
        listed = [_message(f"{ident}-{at}", message) for at, message in enumerate(messages)]
        if order == "desc":
            listed.reverse()
        if after := query.text("after"):
            places = [at for at, message in enumerate(listed) if message["id"] == after]
            if not places:
                raise invalid_field("after", f"{after[:64]!r} is not a message of the completion")
            listed = listed[places[0] + 1 :]
        ids = [message["id"] for message in listed[:limit]]
        await send_json(send, page(listed[:limit], ids, has_more=len(listed) > limit))

    def routes(self) -> Sequence[Route]:
        """Return the routes of these handlers."""
        name, all_ = "stored_completions", "/v1/chat/completions"
        one = f"{all_}/{{completion_id}}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        return [
            Route("GET", all_, name, self.list, read),
            Route("GET", one, name, self.retrieve, read),
            Route("POST", one, name, self.update, write),
            Route("DELETE", one, name, self.delete, write),
            Route("GET", f"{one}/messages", name, self.messages, read),
        ]

    def _asked(self) -> CompletionStore:
        if self._store is None:
            raise not_enabled("chat completions")
        return self._store


def _body(found: FoundCompletion) -> msgspec.Raw:
    """Return a completion as it was answered, with its metadata."""
    return msgspec.Raw(f'{found.body[:-1]},"metadata":{found.metadata}}}'.encode())


def _message(ident: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its id; contents that are parts are apart from texts."""
    content = message.get("content")
    if not isinstance(content, list):
        return message | {"id": ident, "content": content, "content_parts": None}
    parts = [_part(part) for part in content]
    return message | {"id": ident, "content": None, "content_parts": parts}


def _part(part: Any) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {name: value for name, value in part.items() if value is not None}
