"""A summary in a history: instructions stay, and calls stay with their results."""

import json
import random
from typing import Any
from uuid import UUID

import pytest

from baton.conversations.compactions.records import StoredCompaction
from baton.conversations.ids import draw_block, item_text, nth
from baton.errors import BatonError
from services.frontend.openai.responses.compaction.history import NO_SUMMARY, with_summary
from services.frontend.openai.responses.compaction.management import DEFAULT, threshold_of
from services.frontend.openai.responses.compaction.summary import compaction_item
from services.frontend.openai.responses.input.items import messages_of
from services.frontend.openai.responses.input.sealing import ItemSeal
from services.frontend.openai.responses.truncation import header, transformations

SEAL = ItemSeal(b"a" * 32)
SAID = "They want a boat"


def history(rng: random.Random, turns: int) -> tuple[list[dict[str, Any]], list[UUID]]:
    """Return items of turns in which some calls are answered only in a later turn, or never."""
    items: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for turn in range(turns):
        if rng.random() < 0.2:
            items.append({"type": "message", "role": "developer", "content": f"d{turn}"})
        items.append({"type": "message", "role": "user", "content": f"u{turn}"})
        for call in range(rng.choice((0, 0, 1, 3))):
            name = f"c{turn}.{call}"
            known = {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"}
            items.append(known)
            open_calls.append(name)
        for name in list(open_calls):
            if rng.random() < 0.7:
                open_calls.remove(name)
                output = {"type": "function_call_output", "call_id": name, "output": "o"}
                items.append(output)
        items.append({"type": "message", "role": "assistant", "content": f"a{turn}"})
    block = draw_block(1_000_000)
    ids = [nth(block, at) for at in range(1, len(items) + 1)]
    named = zip(items, ids, strict=True)
    return [{"id": item_text(item, ident), **item} for item, ident in named], ids


def compaction(last: UUID, items: int, seal: ItemSeal = SEAL, **fields: Any) -> StoredCompaction:
    body = json.dumps(compaction_item(SAID, seal, UUID(int=1)))
    made = StoredCompaction(last, UUID(int=0), items, 99, body, running=False, error="")
    return made._replace(**fields)


def test_a_compacted_history_still_has_calls_with_results_and_all_instructions() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        items, ids = history(rng, 12)
        before = rng.randrange(1, len(items))
        kept, note = with_summary(items, ids, [compaction(ids[before - 1], before)], SEAL)
        assert (note.items, note.tokens, note.last_item) == (before, 99, ids[before - 1])
        read = messages_of(None, None, 999, SEAL, kept)  # refuses a result without its call
        whole = messages_of(None, None, 999, SEAL, items)
        developer = [one.content for one in whole.messages if one.role == "developer"]
        assert [one.content for one in read.messages if one.role == "developer"] == developer
        assert len(read.summaries) == 2
        assert [read.messages[at].content for at in sorted(read.summaries)][1] == SAID
        said = [item for item in items[before:] if item.get("role") == "user"]
        users = [one.content for at, one in enumerate(read.messages) if at not in read.summaries]
        assert [text for text in users if text.startswith("u")] == [one["content"] for one in said]
        assert sum(read.items) == len(kept)


def test_a_summary_holds_while_all_of_its_items_are_there() -> None:
    items, ids = history(random.Random(1), 4)
    good, older = compaction(ids[5], 6), compaction(ids[3], 4)
    assert with_summary(items, ids, [good, older], SEAL)[1].items == 6
    # An item of it is deleted; its tenant has another secret; it is not written yet.
    gone = [ident for at, ident in enumerate(ids) if at != 5]
    fewer = [item for at, item in enumerate(items) if at != 5]
    assert with_summary(fewer, gone, [good, older], SEAL)[1].items == 4
    other = compaction(ids[5], 6, ItemSeal(b"b" * 32))
    assert with_summary(items, ids, [other], SEAL) == (items, NO_SUMMARY)
    claimed = compaction(ids[7], 8, body=None, running=True, error="no_worker")
    note = with_summary(items, ids, [claimed, good], SEAL)[1]
    assert (note.items, note.running, note.error) == (6, True, "no_worker")


def test_an_answer_says_what_it_did_not_see() -> None:
    assert (transformations(None, [], NO_SUMMARY), header(None, [], NO_SUMMARY)) == ([], ())
    note = NO_SUMMARY._replace(items=6, tokens=99, error="no_worker")
    assert [one["action"] for one in transformations(None, [], note)] == ["replaced", "failed"]
    ((_, value),) = header(None, [], note)
    assert value == (
        b"items=6, tokens=99, summary=true; items=0, tokens=0, summary=false, error=no_worker"
    )


ENTRY = {"type": "compaction"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([ENTRY, ENTRY], "context_management"),
        (["x"], "context_management[0]"),
        ([{"type": "clear"}], "context_management[0].type"),
        ([{"type": 7}], "context_management[0].type"),
        ([ENTRY | {"keep": 1}], "context_management[0].keep"),
        ([ENTRY | {"compact_threshold": 511}], "context_management[0].compact_threshold"),
        ([ENTRY | {"compact_threshold": True}], "context_management[0].compact_threshold"),
        ([ENTRY | {"compact_threshold": "1000"}], "context_management[0].compact_threshold"),
    ],
)
def test_what_of_context_management_is_refused(given: list[Any], field: str) -> None:
    with pytest.raises(BatonError) as caught:
        threshold_of(given)
    assert (caught.value.http_status, caught.value.field) == (400, field)


def test_a_threshold_is_optional() -> None:
    assert [threshold_of(given) for given in (None, [])] == [None, None]
    assert threshold_of([ENTRY]) == threshold_of([ENTRY | {"compact_threshold": None}]) == DEFAULT
    assert threshold_of([ENTRY | {"compact_threshold": 4000}]) == 4000
