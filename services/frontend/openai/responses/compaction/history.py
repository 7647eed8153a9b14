"""A stored history of which a summary takes the place of the oldest turns."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from baton.conversations.compactions.records import StoredCompaction
from baton.conversations.ids import parse_item_id
from services.frontend.openai.responses.input.item_types import CALLS, MESSAGE, OUTPUTS
from services.frontend.openai.responses.input.sealing import SUMMARY, ItemSeal


class SummaryNote(NamedTuple):
    """What a summary stands for in a prompt, or why there is none."""

    items: int = 0
    """0: there is no summary."""
    tokens: int = 0
    first_item: UUID | None = None
    last_item: UUID | None = None
    running: bool = False
    """Whether a later one is being written."""
    error: str = ""
    """Why a later one is not there: a code of an error; empty: none failed."""


NO_SUMMARY = SummaryNote()


def with_summary(
    items: Sequence[Mapping[str, Any]],
    ids: Sequence[UUID],
    found: Sequence[StoredCompaction],
    seal: ItemSeal,
) -> tuple[list[Mapping[str, Any]], SummaryNote]:
    """Return a history in which the last summary that holds takes the place of its items.

    Messages of the system and developer stay, and calls that are not answered within the summary.
    A summary holds if all of its items are there, and its tenant's secret is the same.

    Args:
        items: of the history, with their ids.
        ids: of all items of the path, also of those that are not in `items`.
        found: summaries and claims of the path, the last one first.
        seal: of the tenant.
    """
    error, running = "", False
    for one in found:
        if one.body is None:
            running, error = running or one.running, error or one.error
            continue
        item = msgspec.json.decode(one.body)
        covered = sum(ident <= one.last_item for ident in ids)
        if covered != one.items or seal.open(item["encrypted_content"], SUMMARY) is None:
            continue
        place = next(
            (at for at, each in enumerate(items) if _id_of(each) > one.last_item), len(items)
        )
        before, after = items[:place], items[place:]
        instructions = [each for each in before if _is_instruction(each)]
        note = SummaryNote(one.items, one.tokens, one.first_item, one.last_item, running, error)
        return [*instructions, item, *_unanswered(before), *after], note
    return list(items), SummaryNote(running=running, error=error)


def _id_of(item: Mapping[str, Any]) -> UUID:
    ident = parse_item_id(item["id"])
    assert ident is not None, "stored items have ids"
    return ident


def _is_instruction(item: Mapping[str, Any]) -> bool:
    return item.get("type") == MESSAGE and item.get("role") in ("system", "developer")


def _unanswered(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    answered = {item["call_id"] for item in items if item.get("type") in OUTPUTS}
    return [item for item in items if item.get("type") in CALLS and item["call_id"] not in answered]
