"""Whether stored rows are what clients were told: whole, once, in order."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from uuid import UUID

from baton.conversations.ids import block_of, ids_after
from baton.conversations.store import ConversationStore
from baton.postgres.database import Database
from baton.request.prices import Price
from baton.usage.record import UsageRecord
from bench.conversations.turns import SeenTurn, TurnClient, text_of_item

_LEAST_TOKENS = 8
"""A turn adds at least these to the next one's prompt."""


async def history_of(store: ConversationStore, client: TurnClient) -> list[tuple[str, str]]:
    """Return input and output of each turn that is stored of a client's conversation."""
    if client.managed:
        path = (await store.managed.get(client.scope, client.last)).end
    else:
        path = await store.path(client.scope, client.last)
    bodies = [json.loads(item.body) for item in await store.items(client.scope, path)]
    if path.total_items != len(bodies):
        raise AssertionError(f"{client.name} counts {path.total_items} items of {len(bodies)}")
    texts = [text_of_item(body) for body in bodies]
    roles = [body["role"] for body in bodies]
    if roles != ["user", "assistant"] * (len(bodies) // 2):
        raise AssertionError(f"{client.name} is no sequence: {roles}")
    return list(zip(texts[::2], texts[1::2], strict=True))


def differences(client: TurnClient, history: Sequence[tuple[str, str]]) -> Iterable[str]:
    """Report what of a history is not as its client saw it."""
    told = [(seen.given, seen.output) for seen in client.seen]
    known = {given for given, _ in told}
    others = [given for given, _ in history if given not in known]
    if [turn for turn in history if turn[0] in known] != told:
        yield f"{client.name}: told {told}, and stored are {list(history)}"
    if len(set(others)) != len(others) or not set(others) <= set(client.unclear):
        yield f"{client.name}: has turns that nobody sent, or twice: {others}"
    if others and not client.managed:
        yield f"{client.name}: continues what its client never saw: {others}"
    for before, after in zip(client.seen, client.seen[1:], strict=False):
        if after.prompt_tokens < before.prompt_tokens + _LEAST_TOKENS:
            yield f"{after.request}: does not know the turn before it"


async def half_turns(database: Database) -> list[str]:
    """Return what is wrong with rows: items without their response, or the other way around."""
    problems = []
    items: dict[UUID, set[UUID]] = defaultdict(set)
    for row in await database.fetch("select conversation, id from items"):
        items[row["conversation"]].add(row["id"])
    blocks = set()
    for row in await database.fetch("select id, conversation, last_item from responses"):
        own = ids_after(row["id"], row["last_item"].int - row["id"].int)
        blocks.add((row["conversation"], row["id"]))
        if missing := set(own) - items[row["conversation"]]:
            problems.append(f"response {row['id']} lacks {len(missing)} of {len(own)} items")
    for conversation, found in items.items():
        lost = {block_of(item) for item in found if (conversation, block_of(item)) not in blocks}
        problems += [f"items of {block} have no response" for block in lost]
    return problems


def usage_differences(
    clients: Iterable[TurnClient], records: Iterable[UsageRecord], price: Price
) -> tuple[list[str], dict[str, int]]:
    """Return what differs between records and what clients were told, and the sums of both."""
    problems: list[str] = []
    found: dict[str, list[UsageRecord]] = defaultdict(list)
    for record in records:
        found[record.request_id].append(record)
    sums = {"told": 0, "recorded": 0}
    for client in clients:
        told = {seen.request: seen for seen in client.seen}
        for request in client.requests:
            own = found[request]
            if len(own) > 1:
                problems.append(f"{request}: {len(own)} records")
            if request not in told:
                continue
            cost = _cost(told[request], price)
            sums["told"] += cost
            sums["recorded"] += sum(record.cost_nanodollars or 0 for record in own)
            amounts = [
                (one.prompt_tokens, one.cached_tokens, one.output_tokens, one.outcome, one.tenant)
                for one in own
            ]
            wanted = (*_tokens(told[request]), "ok", client.scope.tenant)
            if amounts != [wanted]:
                problems.append(f"{request}: told {wanted}, recorded {amounts}")
    if sums["told"] != sums["recorded"]:
        problems.append(f"the sums differ: {sums}")
    return problems, sums


def _tokens(seen: SeenTurn) -> tuple[int, int, int]:
    return seen.prompt_tokens, seen.cached_tokens, seen.output_tokens


def _cost(seen: SeenTurn, price: Price) -> int:
    return price.cost(*_tokens(seen))
