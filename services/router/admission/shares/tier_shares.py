"""Tiers share the workers' computing by their weights, by start-time fair queueing.

A tier's virtual time is what it was charged, in tokens by its share. The tier with the least goes
next. A tier that returns begins where the others are and has saved nothing. Unlike tenants', a
tier's debts and claims are bounded, whatever its requests turn out to cost, so that its share
bounds how long it waits: while a tier waits, the others are charged at most `largest ÷ share`
tokens before it goes, and a few requests of each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from services.router.admission.shares.tiers import DEFAULT_TIERS, TierPolicy

CLAIM_REQUESTS = 4.0
"""Mean costs that a tier may be behind the others and still be compensated for: its requests
waited for busy workers."""
_KEEP = 1 - 1 / 256
"""Weight of the mean cost when a request's cost is added."""

T = TypeVar("T")


@dataclass(slots=True)
class _Tier:
    virtual: float
    since: float
    """The global virtual time when the tier last placed a request or began to wait."""
    waiting: int = 0
    """Number of waiting requests."""
    running: int = 0
    """Number of requests with open tickets."""


class TierShares:
    """Virtual times of tiers; nothing is kept while nothing waits or runs. Owned by one event loop.

    Args:
        policy: of the tiers.
    """

    def __init__(self, policy: TierPolicy = DEFAULT_TIERS) -> None:
        self.policy = policy
        self._tiers: dict[int, _Tier] = {}
        self._virtual = 0.0
        """Virtual time of the tier placed last; it never decreases."""
        self._mean = 0.0
        """Moving average of a request's cost, in tokens."""
        self._open = 0
        """Requests that wait or run."""

    def __len__(self) -> int:
        """Return the number of tiers with state."""
        return len(self._tiers)

    def waiting(self, tier: int) -> int:
        """Return the number of waiting requests of a tier."""
        known = self._tiers.get(tier)
        return known.waiting if known is not None else 0

    def join(self, tier: int) -> None:
        """Record that a request begins to wait."""
        known = self._known(tier)
        if not known.waiting:
            self._come(known)
        known.waiting += 1
        self._open += 1

    def leave(self, tier: int) -> None:
        """Record that a request that waited will not run."""
        self._tiers[tier].waiting -= 1
        self._close()

    def begin(self, tier: int, tokens: float) -> None:
        """Charge a tier for a request that waited and runs now."""
        known = self._tiers[tier]
        self._run(known, tier, tokens)
        known.waiting -= 1

    def begin_now(self, tier: int, tokens: float) -> None:
        """Charge a tier for a request that runs without waiting, as `join` and `begin` would."""
        known = self._known(tier)
        if not known.waiting:
            self._come(known)
        self._open += 1
        self._run(known, tier, tokens)

    def settle(self, tier: int, charged: float, used: float) -> None:
        """Correct what a request was charged, once its ticket is returned.

        Args:
            tier: the tier of its tenant.
            charged: the tokens that were charged at its start.
            used: its actual cost; 0: it never ran.
        """
        known, share = self._tiers[tier], self.policy.share(tier)
        moved = known.virtual + (used - charged) / share
        if used > charged:
            known.virtual = max(known.virtual, min(moved, known.since + used / share))
        else:
            known.virtual = max(moved, min(known.virtual, self._virtual))
        known.running -= 1
        self._close()

    def ahead(self, tier: int) -> bool:
        """Return whether a tier received more than another one with waiting or running requests."""
        if self.policy.strict:
            return False
        own = self._tiers[tier].virtual
        return any(
            other.virtual < own for other in self._tiers.values() if other.waiting or other.running
        )

    def merge(self, lines: Mapping[int, Iterator[T]]) -> Iterator[T]:
        """Yield waiting requests in the order in which tiers would take turns.

        Args:
            lines: by tier, in order; each tier has waiting requests.
        """
        if len(lines) == 1 or self.policy.strict:
            for tier in sorted(lines):
                yield from lines[tier]
            return
        turns = {tier: (self._tiers[tier].virtual, tier) for tier in lines}
        while turns:
            virtual, tier = min(turns.values())
            try:
                one = next(lines[tier])
            except StopIteration:
                del turns[tier]
                continue
            yield one
            turns[tier] = virtual + (self._mean or 1.0) / self.policy.share(tier), tier

    def before(
        self, tier: int, seconds: float, others: Mapping[int, float], tokens_per_second: float
    ) -> float:
        """Return the seconds of other tiers' work that go before a request of a waiting tier.

        Args:
            tier: the request's tier.
            seconds: of computation ahead of it within its own tier.
            others: seconds of waiting work of each other tier.
            tokens_per_second: prompt tokens that a worker computes.
        """
        if not others:
            return 0.0
        if self.policy.strict:
            return sum(work for other, work in others.items() if other < tier)
        own, unit = self._tiers[tier], self.policy.share(tier)
        total = 0.0
        for other, work in others.items():
            share = self.policy.share(other)
            apart = (own.virtual - self._tiers[other].virtual) * share / max(1.0, tokens_per_second)
            total += min(work, max(0.0, seconds * share / unit + apart))
        return total

    def most_over(self, tier: int) -> int:
        """Return the tier with the most waiting for its share, when a request arrives.

        Of two with equally much it is the lower one, in any order of arrival.

        Args:
            tier: of the new request; returned unless another one has more.
        """

        def parts(one: int) -> tuple[float, bool, int]:
            has = self.waiting(one) + (one == tier)
            return has / self.policy.share(one), one == tier, one

        return max((tier, *self._tiers), key=parts)

    def _known(self, tier: int) -> _Tier:
        known = self._tiers.get(tier)
        if known is None:
            known = self._tiers[tier] = _Tier(self._virtual, self._virtual)
        return known

    def _come(self, known: _Tier) -> None:
        """Start a tier without waiting requests where the others are."""
        known.virtual = max(known.virtual, self._virtual)
        known.since = self._virtual

    def _run(self, known: _Tier, tier: int, tokens: float) -> None:
        share = self.policy.share(tier)
        start = max(known.virtual, self._virtual - CLAIM_REQUESTS * self._mean / share)
        self._virtual = known.since = max(self._virtual, start)
        known.virtual = start + tokens / share
        self._mean = _KEEP * (self._mean or tokens) + (1 - _KEEP) * tokens
        known.running += 1

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._tiers.clear()
            self._virtual = 0.0
