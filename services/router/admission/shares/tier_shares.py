"""Tiers share what workers compute by their weights, by start-time fair queueing.

A tier's virtual time is what it was charged, in tokens by its share. The tier with the least goes
next. One that comes back begins where the others are: it has saved nothing up. Unlike tenants', a
tier's debts and claims are bounded, whatever its requests turn out to have cost, so that a bound on
how long it waits follows from its share: while a tier waits, the others are charged no more than
`largest ÷ share` tokens before it goes, and a few requests of each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from services.router.admission.shares.tiers import DEFAULT_TIERS, TierPolicy

CLAIM_REQUESTS = 4.0
"""Of the mean cost, that a tier may be behind the others and be given later: its requests waited
for workers that had enough to do."""
_KEEP = 1 - 1 / 256
"""Share of the mean cost that counts beside a new request's."""

T = TypeVar("T")


@dataclass(slots=True)
class _Tier:
    virtual: float
    since: float
    """The virtual time of all when it went last, or began to wait."""
    waiting: int = 0
    """Requests."""
    running: int = 0
    """Requests whose tickets are not back."""


class TierShares:
    """Virtual times of tiers. When nothing waits or runs, nothing is kept. One loop owns it.

    Args:
        policy: of the tiers.
    """

    def __init__(self, policy: TierPolicy = DEFAULT_TIERS) -> None:
        self.policy = policy
        self._tiers: dict[int, _Tier] = {}
        self._virtual = 0.0
        """Where the tier stood whose request went last; it never goes back."""
        self._mean = 0.0
        """Tokens that a request costs lately."""
        self._open = 0
        """Requests that wait or run."""

    def __len__(self) -> int:
        """Return the number of tiers that are remembered."""
        return len(self._tiers)

    def waiting(self, tier: int) -> int:
        """Return how many requests of a tier wait."""
        known = self._tiers.get(tier)
        return known.waiting if known is not None else 0

    def join(self, tier: int) -> None:
        """Note that a request begins to wait."""
        known = self._known(tier)
        if not known.waiting:
            self._come(known)
        known.waiting += 1
        self._open += 1

    def leave(self, tier: int) -> None:
        """Note that a request that waited will not run."""
        self._tiers[tier].waiting -= 1
        self._close()

    def begin(self, tier: int, tokens: float) -> None:
        """Charge a tier for a request that waited and runs now."""
        known = self._tiers[tier]
        self._run(known, tier, tokens)
        known.waiting -= 1

    def begin_now(self, tier: int, tokens: float) -> None:
        """Charge a tier for a request that runs and did not wait, as `join` and `begin` would."""
        known = self._known(tier)
        if not known.waiting:
            self._come(known)
        self._open += 1
        self._run(known, tier, tokens)

    def settle(self, tier: int, charged: float, used: float) -> None:
        """Put right what a request was charged: its ticket is back.

        Args:
            tier: whose it was.
            charged: the tokens that it began with.
            used: what it cost in fact; 0: it never ran.
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
        """Return whether a tier was given more than another one that has something here."""
        if self.policy.strict:
            return False
        own = self._tiers[tier].virtual
        return any(
            other.virtual < own for other in self._tiers.values() if other.waiting or other.running
        )

    def merge(self, lines: Mapping[int, Iterator[T]]) -> Iterator[T]:
        """Yield what waits in the order in which tiers would have their turns.

        Args:
            lines: by tier, in order; each tier waits.
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
        """Return how much of other tiers' work goes before a request of a tier that waits.

        Args:
            tier: whose it is.
            seconds: of computing, that go before it within its own tier.
            others: seconds that wait of each other tier, which waits.
            tokens_per_second: that a worker computes.
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
        """Return the tier that has most waiting for its share, if one of another tier comes.

        Of two that have as much it is the lower one, whichever came first.

        Args:
            tier: of the one that comes; it is returned unless another one has more.
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
        """Let a tier of which nothing waits begin where the others are."""
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
