"""Limits: their subject, what they count, and the amount."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

MAX_AMOUNT = 10**12
"""Highest amount of a limit."""
MAX_BUDGET = 10**18
"""Nano-dollars per month: a billion dollars."""
NO_BUDGET = 2 * MAX_BUDGET
"""The amount of a budget that is only counted, for alerts, and does not limit."""
CONTEXT_TOKENS: Mapping[str, int] = {"free": 32_768, "pro": 65_536, "enterprise": 131_072}
"""Prompt and output tokens together, by tier, unless a record says otherwise."""


class Subject(StrEnum):
    """The kind of owner of a limit."""

    KEY = "key"
    PROJECT = "project"
    TENANT = "tenant"


class Measure(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    """Requests per minute."""
    TOKENS = "tokens"
    """Tokens of prompts and outputs, per minute."""
    AT_ONCE = "requests at once"
    COST = "nano-dollars"
    """Cost per month of UTC."""


BUDGET = "budget_nanodollars_per_month"
"""The field of a record that is a budget; 0: it has none."""
FIELDS: Mapping[Measure, str] = {
    Measure.REQUESTS: "requests_per_minute",
    Measure.TOKENS: "tokens_per_minute",
    Measure.AT_ONCE: "requests_at_once",
    Measure.COST: BUDGET,
}
"""Names of measures in records."""
_AT_ANY_TIME = (Measure.REQUESTS, Measure.TOKENS, Measure.AT_ONCE)
AMOUNTS = (*(FIELDS[one] for one in _AT_ANY_TIME), "context_tokens")
"""The fields of a record that are limits, except its budget; 0: no limit of that kind."""


class LimitId(NamedTuple):
    """Identifies one limit of the cluster."""

    subject: Subject
    name: str
    """ID of the key, project or tenant."""
    measure: Measure
    month: int = 0
    """Of a budget, as `Month` counts: each month has a separate limit. 0: not monthly."""

    def digest(self) -> bytes:
        """Return 16 bytes that are the same in every process, by which the router is chosen."""
        parts = [self.subject, self.name, self.measure, *([str(self.month)] if self.month else [])]
        return blake2b("\0".join(parts).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Limit:
    """The allowed amount of one measure."""

    id: LimitId
    amount: int
    """Per minute; for a concurrency limit: requests; for a budget: nano-dollars in its month."""
    burst: int
    """Units that may be used in one moment after an idle period; 1 or more."""
    version: int = 1
    """Version of the record with this limit: of two, the higher is in force."""
    title: str = field(default="", compare=False)
    """Display name of the key or project; only frontends know it."""

    @property
    def whose(self) -> str:
        """The key, project or tenant, as named in messages."""
        return whose(self.id.subject, self.id.name, self.title)

    @property
    def per_minute(self) -> int:
        """Units that return in a minute; 0: only as requests end."""
        return self.amount if self.id.measure in (Measure.REQUESTS, Measure.TOKENS) else 0


@dataclass(frozen=True, slots=True)
class SubjectLimits:
    """The limits of one key, project or tenant; 0: no limit of that kind."""

    subject: Subject
    name: str
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    requests_at_once: int = 0
    context_tokens: int = 0
    """Prompt and output tokens together, in one request."""
    version: int = 1
    budget_nanodollars_per_month: int = 0
    has_alerts: bool = False
    """Whether spending is counted even without a budget."""
    title: str = ""
    """Display name, if it differs from the ID."""

    def __post_init__(self) -> None:
        """Check the amounts.

        Raises:
            ValueError: one is out of range; the message names it.
        """
        for name in AMOUNTS:
            check_amount(name, getattr(self, name))
        check_budget(self.budget_nanodollars_per_month)

    def limits(self, month: int = 0) -> Iterator[Limit]:
        """Yield the limits that are counted. A minute's amount may be used in one moment.

        Args:
            month: month of the budget; 0: without the budget.
        """
        for measure in _AT_ANY_TIME:
            if amount := getattr(self, FIELDS[measure]):
                limit_id = LimitId(self.subject, self.name, measure)
                yield Limit(limit_id, amount, amount, self.version, self.title)
        budget = self.budget_nanodollars_per_month or (NO_BUDGET if self.has_alerts else 0)
        if budget and month:
            limit_id = LimitId(self.subject, self.name, Measure.COST, month)
            yield Limit(limit_id, budget, budget, self.version, self.title)


def whose(subject: Subject, name: str, title: str) -> str:
    """Return the name of a key, project or tenant in messages: display name and ID."""
    return f"{subject} {title!r} ({name})" if title else f"{subject} {name!r}"


def check_amount(field: str, value: int) -> None:
    """Check the amount of a limit.

    Raises:
        ValueError: it is out of range; the message names the field.
    """
    if not 0 <= value <= MAX_AMOUNT:
        raise ValueError(f"{field}: {value} is out of range: 0 (no limit) to {MAX_AMOUNT}")


def check_budget(value: int) -> None:
    """Check the amount of a budget.

    Raises:
        ValueError: it is out of range; the message names the field.
    """
    if not 0 <= value <= MAX_BUDGET:
        raise ValueError(f"{BUDGET}: {value} is out of range: 0 (no budget) to {MAX_BUDGET}")


def context_tokens(subjects: Iterable[SubjectLimits], tier: str) -> tuple[int, Subject]:
    """Return the longest prompt and output together that all subjects allow, and the limiting
    subject.

    Args:
        subjects: a key, its project and its tenant.
        tier: the tenant's; provides the tenant's limit if its record has none.
    """
    stated = [(one.context_tokens, one.subject) for one in subjects if one.context_tokens]
    if all(subject is not Subject.TENANT for _, subject in stated):
        stated.append((CONTEXT_TOKENS[tier], Subject.TENANT))
    return min(stated, key=lambda one: one[0])
