"""Limits: whose they are, what they count and how much."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

MAX_AMOUNT = 10**12
"""Of a limit."""
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


FIELDS: Mapping[Measure, str] = {
    Measure.REQUESTS: "requests_per_minute",
    Measure.TOKENS: "tokens_per_minute",
    Measure.AT_ONCE: "requests_at_once",
}
"""What records call what is counted."""
AMOUNTS = (*FIELDS.values(), "context_tokens")
"""The fields of a record that are limits; 0: it has none of that kind."""


class LimitId(NamedTuple):
    """Names one limit of the cluster."""

    subject: Subject
    name: str
    """Id of the key, project or tenant."""
    measure: Measure

    def digest(self) -> bytes:
        """Return 16 bytes that are the same in every process: what chooses the router."""
        return blake2b("\0".join(self).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of something is allowed."""

    id: LimitId
    amount: int
    """Per minute; of requests at once: how many."""
    burst: int
    """Units that may be used in one moment after a while without any; 1 or more."""
    version: int = 1
    """Of the record that says so: of two, the higher is in force."""

    @property
    def per_minute(self) -> int:
        """Units that come back in a minute; 0: only as requests end."""
        return 0 if self.id.measure is Measure.AT_ONCE else self.amount


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

    def __post_init__(self) -> None:
        """Check the amounts.

        Raises:
            ValueError: one is out of range; the message names it.
        """
        for field in AMOUNTS:
            check_amount(field, getattr(self, field))

    def limits(self) -> Iterator[Limit]:
        """Yield those that are counted. A minute's worth may be used in one moment."""
        for measure, field in FIELDS.items():
            if amount := getattr(self, field):
                limit_id = LimitId(self.subject, self.name, measure)
                yield Limit(limit_id, amount, amount, self.version)


def check_amount(field: str, value: int) -> None:
    """Check what a limit is set to.

    Raises:
        ValueError: it is out of range; the message names the field.
    """
    if not 0 <= value <= MAX_AMOUNT:
        raise ValueError(f"{field}: {value} is out of range: 0 (no limit) to {MAX_AMOUNT}")


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
