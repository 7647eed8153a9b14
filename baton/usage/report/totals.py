"""Totals of a report, compared with the cost of the same tokens at a provider's prices.

Prices depend on model, adapter, tier and batch, and costs are sums of integers, so computing them
from groups gives the same result as from requests.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from baton.request.prices import PriceTable, dollars
from baton.usage.report.question import Column, Sums, UsageGroup

K = TypeVar("K", bound=tuple[object, ...])

PRICE_COLUMNS: tuple[Column, ...] = ("model", "adapter", "tier", "batch", "priced")
"""Columns that a query must group by for a comparison with a provider."""


@dataclass(slots=True)
class Totals:
    """Total usage and cost of requests; costs in nano-dollars."""

    requests: int = 0
    lost: int = 0
    """Of these, requests whose frontend ended before them: only their prompts are known."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_nanodollars: int = 0
    unpriced: int = 0
    """Requests whose model had no price."""
    provider_nanodollars: int = 0
    """Cost of the same tokens at the provider's prices."""
    provider_unpriced: int = 0
    """Requests whose model has no price at the provider."""
    saved_nanodollars: int = 0
    """Savings of requests that have both prices; negative: they cost more."""

    def add(self, group: UsageGroup, provider: PriceTable) -> None:
        """Add a group, which is grouped by all of PRICE_COLUMNS."""
        labels, sums = group.labels, group.sums
        self.requests += sums.requests
        self.lost += sums.lost
        self.prompt_tokens += sums.prompt_tokens
        self.cached_tokens += sums.cached_tokens
        self.output_tokens += sums.output_tokens
        self.cost_nanodollars += sums.cost_nanodollars
        self.unpriced += sums.unpriced
        found = provider.find(
            labels.model or "", labels.adapter or "", labels.tier or "", batch=bool(labels.batch)
        )
        if found is None:
            self.provider_unpriced += sums.requests - sums.lost
            return
        cost = found.cost(*_charged(sums))
        self.provider_nanodollars += cost
        if labels.priced:
            self.saved_nanodollars += cost - sums.cost_nanodollars


_TOTALS = tuple(one.name for one in fields(Totals))


def _charged(sums: Sums) -> tuple[int, int, int]:
    return sums.charged_prompt_tokens, sums.charged_cached_tokens, sums.charged_output_tokens


def totals_by(
    groups: Iterable[UsageGroup], key: Callable[[UsageGroup], K], provider: PriceTable
) -> dict[K, Totals]:
    """Return totals by the key of a report's rows, in its order.

    Args:
        groups: grouped by all of PRICE_COLUMNS.
        key: returns the row of a group.
        provider: prices to compare with.
    """
    found: dict[K, Totals] = {}
    for group in groups:
        found.setdefault(key(group), Totals()).add(group, provider)
    return dict(sorted(found.items(), key=lambda item: item[0]))


def total_of(groups: Iterable[UsageGroup], provider: PriceTable) -> Totals:
    """Return the totals of all groups together."""
    total = Totals()
    for group in groups:
        total.add(group, provider)
    return total


def shown(totals: Totals, *, compares: bool) -> dict[str, Any]:
    """Return totals as shown in reports: amounts in nano-dollars, and as exact dollars in text.

    Args:
        totals: the totals.
        compares: whether there are prices to compare with; if not, the dependent values are None.
    """
    told: dict[str, Any] = {name: getattr(totals, name) for name in _TOTALS}
    for name in ("cost", "provider", "saved"):
        told[f"{name}_usd"] = dollars(told[f"{name}_nanodollars"])
    if not compares:
        told |= {name: None for name in told if name.startswith(("provider_", "saved_"))}
    return told
