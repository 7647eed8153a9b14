"""Limits: whose they are, what they count and how much."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

MAX_AMOUNT = 10**12
"""Of a limit."""
MAX_BUDGET = 10**18
"""Nano-dollars per month: a billion dollars."""
NO_BUDGET = 2 * MAX_BUDGET
"""The amount of what is only counted, for alerts, and limited by nothing."""
CONTEXT_TOKENS: Mapping[str, int] = {"free": 32_768, "pro": 65_536, "enterprise": 131_072}
"""Prompt and output together, by tier, where no record says otherwise."""


class Subject(StrEnum):
    """Whose a limit is."""

    KEY = "key"
    PROJECT = "project"
    TENANT = "tenant"


class Measure(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    """Per minute."""
    TOKENS = "tokens"
    """Of prompts and outputs, per minute."""
    AT_ONCE = "requests at once"
    COST = "nano-dollars"
    """Per month of UTC."""


BUDGET = "budget_nanodollars_per_month"
"""The field of a record that is a budget; 0: it has none."""
FIELDS: Mapping[Measure, str] = {
    Measure.REQUESTS: "requests_per_minute",
    Measure.TOKENS: "tokens_per_minute",
    Measure.AT_ONCE: "requests_at_once",
    Measure.COST: BUDGET,
}
"""What records call what is counted."""
_AT_ANY_TIME = (Measure.REQUESTS, Measure.TOKENS, Measure.AT_ONCE)
AMOUNTS = (*(FIELDS[one] for one in _AT_ANY_TIME), "context_tokens")
"""The fields of a record that are limits, but its budget; 0: it has none of that kind."""


class LimitId(NamedTuple):
    """Names one limit of the cluster."""

    subject: Subject
    name: str
    """Id of the key, project or tenant."""
    measure: Measure
    month: int = 0
    """Of a budget, as `Month` counts: each month's is a limit of its own. 0: of any time."""

    def digest(self) -> bytes:
        """Return 16 bytes that are the same in every process: what chooses the router."""
        parts = [self.subject, self.name, self.measure, *([str(self.month)] if self.month else [])]
        return blake2b("\0".join(parts).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of something is allowed."""

    id: LimitId
    amount: int
    """Per minute; of requests at once: how many; of a budget: nano-dollars in its month."""
    burst: int
    """Units that may be used in one moment after a while without any; 1 or more."""
    version: int = 1
    """Of the record that says so: of two, the higher is in force."""
    title: str = field(default="", compare=False)
    """What people call the key or project; only frontends know it."""

    @property
    def whose(self) -> str:
        """The key, project or tenant, as sentences name it."""
        return whose(self.id.subject, self.id.name, self.title)

    @property
    def per_minute(self) -> int:
        """Units that come back in a minute; 0: only as requests end."""
        return self.amount if self.id.measure in (Measure.REQUESTS, Measure.TOKENS) else 0


@dataclass(frozen=True, slots=True)
class SubjectLimits:
    """The limits of one key, project or tenant; 0: it has none of that kind."""

    subject: Subject
    name: str
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    requests_at_once: int = 0
    context_tokens: int = 0
    """Of prompt and output together, in one request."""
    version: int = 1
    budget_nanodollars_per_month: int = 0
    has_alerts: bool = False
    """Whether what it spends is counted also without a budget."""
    title: str = ""
    """What people call it, where that is not its id."""

    def __post_init__(self) -> None:
        """Check the amounts.

        Raises:
            ValueError: one is out of range; the message names it.
        """
        for name in AMOUNTS:
            check_amount(name, getattr(self, name))
        check_budget(self.budget_nanodollars_per_month)

    def limits(self, month: int = 0) -> Iterator[Limit]:
        """Yield those that are counted. A minute's worth may be used in one moment.

        Args:
            month: whose budget is meant; 0: none.
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
    """Return what a sentence calls a key, project or tenant: by what people do, and by its id."""
    return f"{subject} {title!r} ({name})" if title else f"{subject} {name!r}"


def check_amount(field: str, value: int) -> None:
    """Check what a limit is set to.

    Raises:
        ValueError: it is out of range; the message names the field.
    """
    if not 0 <= value <= MAX_AMOUNT:
        raise ValueError(f"{field}: {value} is out of range: 0 (no limit) to {MAX_AMOUNT}")


def check_budget(value: int) -> None:
    """Check what a budget is set to.

    Raises:
        ValueError: it is out of range; the message names the field.
    """
    if not 0 <= value <= MAX_BUDGET:
        raise ValueError(f"{BUDGET}: {value} is out of range: 0 (no budget) to {MAX_BUDGET}")


def context_tokens(subjects: Iterable[SubjectLimits], tier: str) -> tuple[int, Subject]:
    """Return the longest prompt and output together that all allow, and whose limit that is.

    Args:
        subjects: a key, its project and its tenant.
        tier: the tenant's; gives the tenant's limit if its record gives none.
    """
    stated = [(one.context_tokens, one.subject) for one in subjects if one.context_tokens]
    if all(subject is not Subject.TENANT for _, subject in stated):
        stated.append((CONTEXT_TOKENS[tier], Subject.TENANT))
    return min(stated, key=lambda one: one[0])
