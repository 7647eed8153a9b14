"""Comparison of a run's records with the usage reported to its clients. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from baton.request.prices import PriceTable
from baton.usage.record import LOST, UsageRecord
from bench.usage.exactly_once.asks import REFUSED
from bench.usage.exactly_once.clients import Seen

SUMS = ("answers", "prompt", "cached", "output", "nano-dollars")
By = tuple[str, str, str]
"""Tenant, project and key."""
Sum = Counter[str]


@dataclass
class Verdict:
    """The result of the comparison."""

    problems: list[str] = field(default_factory=list)
    answers: dict[By, Sum] = field(default_factory=lambda: defaultdict(Counter))
    """Sums of the usage reported to clients."""
    records: dict[By, Sum] = field(default_factory=lambda: defaultdict(Counter))
    """Sums of the records of these requests."""
    others: Counter[str] = field(default_factory=Counter)
    """Records of requests whose client received no end, by outcome."""


def judge(
    found: Iterable[UsageRecord],
    asked: Iterable[Seen],
    who: Mapping[int, By],
    tiers: Mapping[str, str],
    prices: PriceTable,
    killed: set[tuple[str, int]],
) -> Verdict:
    """Compare records with clients' results.

    Args:
        found: the records, one per id.
        asked: every request.
        who: owners of the keys.
        tiers: tiers of tenants.
        prices: prices of tokens.
        killed: starts of frontends that were killed.
    """
    verdict = Verdict()
    by_request: dict[str, list[UsageRecord]] = defaultdict(list)
    for record in found:
        by_request[record.request_id].append(record)
    for seen in asked:
        records = [one for ident in seen.ask.records for one in by_request.pop(ident, [])]
        by = who[seen.ask.key]
        problems = _problems(seen, records, by, tiers[by[0]], prices, seen.frontend in killed)
        verdict.problems += [f"{seen.ask.id} ({seen.ask.kind}): {one}" for one in problems]
        if seen.told is None:
            verdict.others.update(one.outcome for one in records)
            continue
        told = seen.told
        price = prices.find(seen.ask.model, "", tiers[by[0]], batch=False)
        assert price is not None
        cost = price.cost(told.prompt_tokens, told.cached_tokens, told.output_tokens)
        amounts = (told.prompt_tokens, told.cached_tokens, told.output_tokens, cost)
        verdict.answers[by].update(dict(zip(SUMS, (1, *amounts), strict=True)))
        _add(verdict.records, records)
    verdict.problems += [f"{ident}: a record, and no request" for ident in by_request]
    if verdict.answers != verdict.records:
        verdict.problems.append("the sums by tenant, project and key differ")
    return verdict


def _add(sums: dict[By, Sum], records: list[UsageRecord]) -> None:
    """Add the records of one response."""
    for index, one in enumerate(records):
        amounts = (
            one.prompt_tokens,
            one.cached_tokens or 0,
            one.output_tokens or 0,
            one.cost_nanodollars or 0,
        )
        by = one.tenant, one.project, one.key
        sums[by].update(dict(zip(SUMS, (index == 0, *amounts), strict=True)))


def _problems(
    seen: Seen, records: list[UsageRecord], by: By, tier: str, prices: PriceTable, killed: bool
) -> Iterable[str]:
    ask = seen.ask
    if ask.kind in REFUSED or seen.refused:
        if seen.told is not None:
            yield "was answered"
        if records:
            yield f"was refused, and has {len(records)} records"
        return
    counts = Counter(one.request_id for one in records)
    if any(count > 1 for count in counts.values()):
        yield f"has more than one record: {dict(counts)}"
    for one in records:
        if (one.tenant, one.project, one.key, one.tier) != (*by, tier):
            yield f"a record of {one.tenant}, {one.project}, {one.key}, {one.tier}"
        if one.outcome == LOST and not killed:
            yield "is lost, and its frontend was not killed"
        yield from _cost(one, prices)
    if seen.told is not None:
        yield from _as_told(seen, records)
    elif any(one.outcome == LOST for one in records):
        return  # its usage is not known
    elif records and sum(one.output_tokens or 0 for one in records) < seen.tokens:
        yield f"saw {seen.tokens} tokens, and its records have fewer"
    elif seen.tokens and not killed and len(counts) != len(ask.records):
        yield f"saw tokens of a frontend that was not killed, and has {len(counts)} records"


def _cost(record: UsageRecord, prices: PriceTable) -> Iterable[str]:
    """Report a record whose cost is not its tokens times their price."""
    price = prices.find(record.model, record.adapter, record.tier, batch=record.batch)
    if record.outcome == LOST or price is None:
        if (record.cost_nanodollars, record.output_tokens) != (None, None):
            yield "is lost, and has tokens or a cost"
        return
    output = record.output_tokens or 0
    cost = price.cost(record.prompt_tokens, record.cached_tokens or 0, output) if output else 0
    if record.cost_nanodollars != cost:
        yield f"costs {record.cost_nanodollars} nano-dollars, and its tokens {cost}"


def _as_told(seen: Seen, records: list[UsageRecord]) -> Iterable[str]:
    assert seen.told is not None
    told, ask = seen.told, seen.ask
    if tuple(one.request_id for one in records) != ask.records:
        yield f"saw its end, and has {len(records)} of {len(ask.records)} records"
        return
    if {one.outcome for one in records} != {"ok"}:
        yield f"saw its end, and its records say {[one.outcome for one in records]}"
        return
    recorded = (
        sum(one.prompt_tokens for one in records),
        sum(one.cached_tokens or 0 for one in records),
        sum(one.output_tokens or 0 for one in records),
        tuple(reason for one in records for reason in one.finish_reasons),
    )
    wanted = (told.prompt_tokens, told.cached_tokens, told.output_tokens, told.finish_reasons)
    if recorded != wanted:
        yield f"was told {wanted}, and its records say {recorded}"
    if not ask.chat and any(
        one.prompt_tokens != len(prompt) for one, prompt in zip(records, ask.prompts, strict=True)
    ):
        yield "has records with other prompt tokens than its prompts"
