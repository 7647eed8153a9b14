"""The limits of each calling key, by its current records."""

from collections import OrderedDict
from dataclasses import dataclass

from baton.tenancy.directory.principal import Principal
from baton.tenancy.limits.limit_set import LimitSet
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.spec import context_tokens
from baton.tenancy.records.tenants import limits_of
from services.frontend.requests.context import RequestContextLimit

MAX_KEYS = 4096
"""Most keys whose limits are cached; those of others are rebuilt on use, in 20 µs."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What limits a key's requests: its own, its project's and its tenant's limits."""

    principal: Principal
    counted: LimitSet | None
    """Limits of requests, tokens, concurrency and budgets; None: there are none."""
    context: RequestContextLimit
    most_tokens: int | None
    """Most tokens that all token limits allow in one moment; None: there are none."""


class KeyLimitTable:
    """Builds the limits of keys, and caches the most recently used. Lives on the event loop.

    Args:
        limiter: makes limit sets.
    """

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._by_key: OrderedDict[str, KeyLimits] = OrderedDict()

    def of(self, principal: Principal) -> KeyLimits:
        """Return the limits of a principal; the same object while none of its records changes."""
        ident = principal.key.id
        known = self._by_key.get(ident)
        if known is None or not _same(known.principal, principal):
            known = self._by_key[ident] = self._make(principal)
            if len(self._by_key) > MAX_KEYS:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(ident)
        return known

    def forget(self) -> None:
        """Drop all cached limits: a new month has begun."""
        self._by_key.clear()

    def _make(self, principal: Principal) -> KeyLimits:
        records = (principal.key, principal.project, principal.tenant)
        subjects = [limits_of(record) for record in records]
        tokens, subject = context_tokens(subjects, principal.tenant.tier)
        owner = next(one for one in subjects if one.subject is subject)
        counted = self._limiter.limit_set(subjects)
        return KeyLimits(
            principal,
            counted if counted.shares or counted.budgets else None,
            RequestContextLimit(tokens, subject, owner.name, owner.title),
            min((share.limit.burst for share in counted.tokens), default=None),
        )


def _same(one: Principal, other: Principal) -> bool:
    return one.key is other.key and one.project is other.project and one.tenant is other.tenant
