"""Input items that are named by their ids: `item_reference`."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import msgspec

from baton.conversations.failures import missing
from baton.conversations.ids import item_text, parse_item_id
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.errors import invalid_field
from services.frontend.requests.refusals import check_count


async def resolve(
    store: ConversationStore, scope: StateScope, given: Any, before: Collection[UUID]
) -> Any:
    """Return an input whose references are the items that they name; one read if there are any.

    A reference to an item that the input continues is left out: the item is there already.

    Args:
        store: of the items.
        scope: whose items may be named.
        given: the input.
        before: ids of the items that it continues.

    Raises:
        BatonError: NOT_FOUND: an item is not one of a stored response of the project;
            INVALID_FIELD: a reference has no id, or there are too many.
    """
    if not isinstance(given, list) or not any(map(_is_reference, given)):
        return given
    check_count("input", len(given), store.settings.max_items)
    there = set(before)
    names: dict[int, str] = {}
    for at, item in enumerate(given):
        if _is_reference(item):
            name = item.get("id")
            if not isinstance(name, str):
                raise invalid_field(f"input[{at}].id", "must be the id of an item")
            names[at] = name
    idents = {name: parse_item_id(name) for name in names.values()}
    asked = {one for one in idents.values() if one is not None} - there
    found = await store.named_items(scope, list(asked))
    resolved: list[Any] = []
    for at, item in enumerate(given):
        if at not in names:
            resolved.append(item)
        elif (ident := idents[names[at]]) not in there:
            name = names[at]
            body = None if ident is None else found.get(ident)
            stored = None if body is None else msgspec.json.decode(body)
            if ident is None or stored is None or item_text(stored, ident) != name:
                raise missing("item", name)
            resolved.append(stored)
    return resolved


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and (
        item.get("type") == "item_reference" or (item.keys() <= {"id", "type"} and "id" in item)
    )
