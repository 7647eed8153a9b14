"""What a response continues, read before it, and what is stored of it, written before its end."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from baton.conversations.compactions.records import StoredCompaction
from baton.conversations.ids import CONVERSATION, draw_block, item_text, nth, text_of
from baton.conversations.managed.conversations import check_room
from baton.conversations.records import StateScope, StoredItem, StoredPath, Turn
from baton.conversations.storage.records import StorageLimits
from baton.conversations.store import ConversationStore
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.openai.responses.compaction.history import NO_SUMMARY, SummaryNote
from services.frontend.openai.responses.compaction.management import threshold_of
from services.frontend.openai.responses.encoder import ResponseEncoder, ResponseName
from services.frontend.openai.responses.output import INCOMPLETE
from services.frontend.openai.responses.references import resolve
from services.frontend.openai.responses.schema import ResponseBody
from services.frontend.requests.refusals import unsupported

_encode, _decode = msgspec.json.encode, msgspec.json.decode
_CALLS = "function_call", "custom_tool_call"
NOTHING_STORED = "this cluster stores nothing (conversations.enabled is off)"


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a response continues, and whether it is stored."""

    scope: StateScope
    stored: bool
    path: StoredPath | None = None
    """None: it continues nothing."""
    items: Sequence[Mapping[str, Any]] = ()
    """All items before its input; a summary may be in the place of the first ones."""
    ids: Sequence[UUID] = ()
    """Of all that is stored before its input."""
    found: Sequence[StoredCompaction] = ()
    """Summaries of that, the last one first, if the request asks for them."""
    note: SummaryNote = NO_SUMMARY

    @property
    def moves_on(self) -> bool:
        """Whether it moves a conversation on that a client manages."""
        return self.path is not None and self.path.extends and not self.path.hidden

    @property
    def execution_id(self) -> str:
        """The name of its turn, of which one runs at a time; empty: it has none."""
        if self.path is None or not self.moves_on:
            return ""
        return f"{text_of(CONVERSATION, self.path.conversation)}.{self.path.version}"


def scope_of(who: Principal) -> StateScope:
    """Return whose rows a caller reads and writes."""
    return StateScope(who.tenant.id, who.project.id)


def limits_of(who: Principal) -> StorageLimits:
    """Return what a caller's tenant may store."""
    return StorageLimits(who.tenant.stored_conversations, who.tenant.stored_bytes)


async def read_context(
    store: ConversationStore | None, body: ResponseBody, who: Principal
) -> TurnContext:
    """Return what a body continues. One read by key if it names a response or a conversation, and
    one more if that lived in several months or is a branch; otherwise none. One more for items that
    its input names, which take their places there, and one for a response to store where the tenant
    has a limit.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: it needs a store, and there is none, or names both;
            PERMISSION_DENIED: the key lacks a scope; NOT_FOUND; INVALID_FIELD: the conversation has
            too many items; INSUFFICIENT_QUOTA; UNAVAILABLE.
    """
    scope, previous, conversation = scope_of(who), body.previous_response_id, body.conversation_id
    if store is None:
        if body.store:
            raise unsupported("store", why=f"{NOTHING_STORED}; send false, or omit it")
        for field, value in (("previous_response_id", previous), ("conversation", conversation)):
            if value:
                raise unsupported(field, why=f"{NOTHING_STORED}; send all items as input")
        return TurnContext(scope, stored=False)
    if body.store or conversation:
        who.require(KeyScope.STATE_WRITE)
    if previous or conversation:
        who.require(KeyScope.STATE_READ)
    stored = body.store is not False and who.has(KeyScope.STATE_WRITE)
    if conversation and previous:
        raise unsupported(
            "previous_response_id", why="conversation has all items before the input; send one"
        )
    if conversation and not stored:
        raise unsupported("store", why="turns of conversations are stored; omit it")
    with store.database.budget():
        if stored:
            await store.storage.check_bytes(scope.tenant, limits_of(who))
        if conversation:
            found, read = await store.managed.history(scope, conversation)
            path = found.end
        elif previous:
            path, read = await store.history(scope, previous)
        else:
            body.input = await resolve(store, scope, body.input, ())
            return TurnContext(scope, stored)
        field = "conversation" if conversation else "previous_response_id"
        check_room(path, _count(body.input), 0, store.settings, field)
        compacts = threshold_of(body.context_management) is not None
        context = await read_path(store, scope, path, read, stored=stored, compacts=compacts)
        body.input = await resolve(store, scope, body.input, context.ids)
        return context


async def read_path(
    store: ConversationStore,
    scope: StateScope,
    path: StoredPath,
    read: list[StoredItem] | None = None,
    *,
    stored: bool,
    compacts: bool,
) -> TurnContext:
    """Return what is before a place.

    Args:
        store: reads it.
        scope: whose it is.
        path: the place.
        read: its items; None: they are read.
        stored: whether the response is.
        compacts: whether to read summaries.
    """
    found = await store.compactions.latest(scope, path) if compacts else ()
    if read is None:
        read = await store.items(scope, path)
    items = [_decode(item.body) for item in read]
    continued = [_without_seal(item) for item in items if not _is_cut_call(item)]
    return TurnContext(scope, stored, path, continued, [item.id for item in read], found)


def name_response(context: TurnContext, body: ResponseBody) -> ResponseName:
    """Return the ids of a new response and its items, which are above all that it continues."""
    now = time.time()
    last = None if context.path is None else context.path.last_item
    block = draw_block(int(now * 1000), last)
    return ResponseName(block, int(now), _count(body.input), stored=context.stored)


def input_items(given: str | Sequence[Any] | None) -> list[dict[str, Any]]:
    """Return an input as items in the form in which they are listed, without ids of their own."""
    if not given:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [_listed(item) for item in given]


def turn_of(context: TurnContext, encoder: ResponseEncoder) -> Turn:
    """Return a response that ended, with its items, as it is stored."""
    given = input_items(encoder.input)
    return stored_turn(encoder.name.block, given, encoder.body(), context.path)


def stored_turn(
    block: UUID, given: Sequence[dict[str, Any]], body: dict[str, Any], path: StoredPath | None
) -> Turn:
    """Return a response as it is stored.

    Args:
        block: its id.
        given: its input items.
        body: the response; `output` is taken out.
        path: what it continues.
    """
    items: list[dict[str, Any]] = []
    for at, item in enumerate(given, 1):
        items.append(item | {"id": item_text(item, nth(block, at))})
    items += body.pop("output")
    return Turn(
        block,
        [_encode(item).decode() for item in items],
        len(given),
        body["status"],
        _encode(body).decode(),
        path,
    )


async def keep(
    store: ConversationStore | None, context: TurnContext, encoder: ResponseEncoder
) -> None:
    """Store a response, if it is to be stored.

    A failed one is no turn of a conversation that a client manages: it would be part of the next
    attempt.

    Raises:
        BatonError: as of `ConversationStore.write`.
    """
    if context.moves_on and encoder.has_failed:
        return
    if store is not None and context.stored:
        await store.keep(context.scope, turn_of(context, encoder))


def room_of(
    store: ConversationStore | None, context: TurnContext, size: int
) -> AbstractContextManager[None]:
    """Reserve space for a response that may have to wait for the database.

    Raises:
        BatonError: UNAVAILABLE: there is none.
    """
    if store is None or store.pending is None or not context.stored:
        return nullcontext()
    return store.pending.room(size)


def _count(given: str | Sequence[Any] | None) -> int:
    """Return how many items an input has."""
    return 0 if not given else 1 if isinstance(given, str) else len(given)


def _listed(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):  # refused where the messages are read
        return {}
    kind = given.get("type", "message")
    item: dict[str, Any] = {"type": kind}
    item |= {name: value for name, value in given.items() if value is not None}
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        assistant = item.get("role") == "assistant"
        part: dict[str, Any] = {"type": "output_text" if assistant else "input_text"}
        part["text"] = content
        if assistant:
            part["annotations"] = []
        item["content"] = [part]
    item.setdefault("status", "completed")
    return item


def _without_seal(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item whose reasoning is not read from its seal if it is there as text."""
    if item.get("content"):
        item.pop("encrypted_content", None)
    return item


def _is_cut_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a call whose arguments were cut off: no template can render it."""
    return item.get("type") in _CALLS and item.get("status") == INCOMPLETE
