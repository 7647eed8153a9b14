"""Start-time fair queueing: tenants of a tier share its part of the work by their weights.

A tenant's virtual time is the weighted tokens it received. Tenants of a tier go by it, and those
close to the least count as equal, so that among them the shortest prompts go first. A tenant that
returns begins at the virtual time of the others: unused time is lost, while excess is remembered as
long as others wait. Each tier has its own times, as tiers do not receive equal amounts. A
request's cost is predicted when it is placed, and corrected when its ticket is returned.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TIE_SECONDS = 2.0
"""Seconds of a worker's computing within which tenants are equal."""
_TIE_REQUESTS = 2.0
"""The same, in multiples of the mean cost of a request."""
_KEEP = 1 - 1 / 256
"""Weight of the mean cost when a request's cost is added."""
OUTPUT_WEIGHT = 2
"""Prompt tokens that an output token costs as much as."""
_MIN_SHARES = 1_024


@dataclass(slots=True)
class _Share:
    virtual: float
    tier: int
    weight: float = 1.0
    waiting: int = 0
    """Number of waiting requests."""
    running: int = 0
    """Number of requests with open tickets."""
    charged_tokens: int = 0
    """Tokens charged for running requests."""


class FairShares:
    """Virtual times of tenants; empty while nothing waits or runs. Owned by one event loop.

    Args:
        tie_seconds: tenants whose virtual time exceeds the least by no more than a worker computes
            in this time are equal, and by no more than two requests cost.
        output_weight: prompt tokens that an output token costs as much as.
    """

    def __init__(
        self, tie_seconds: float = TIE_SECONDS, output_weight: int = OUTPUT_WEIGHT
    ) -> None:
        self.tokens_per_second = 1_000.0
        """Prompt tokens per second of a worker, set by the caller that knows the workers."""
        self._tie_seconds = tie_seconds
        self._output_weight = output_weight
        self._shares: dict[str, _Share] = {}
        self._mean_tokens = 0.0
        """Moving average of a request's cost, in tokens."""
        self._virtual: defaultdict[int, float] = defaultdict(float)
        """By tier, the virtual time of the tenant placed last; it never decreases."""
        self._open = 0
        """Requests that wait or run."""
        self._trim_at = _MIN_SHARES

    def __len__(self) -> int:
        """Return the number of tenants with state."""
        return len(self._shares)

    def cost(self, uncached_tokens: int, output_tokens: int) -> int:
        """Return what a request costs its tenant, in prompt tokens."""
        return uncached_tokens + self._output_weight * output_tokens

    def charged_tokens(self, tenant: str) -> int:
        """Return what a tenant's running requests were charged."""
        share = self._shares.get(tenant)
        return share.charged_tokens if share is not None else 0

    def join(self, tenant: str, weight: float, tier: int = 0) -> None:
        """Record that a request begins to wait.

        Args:
            tenant: the tenant that owns it.
            weight: of the tenant from now on, above 0.
            tier: of the tenant from now on.
        """
        share = self._share(tenant, weight, tier)
        if not share.waiting:
            share.virtual = max(share.virtual, self._virtual[tier])
        share.waiting += 1
        self._open += 1

    def leave(self, tenant: str) -> None:
        """Record that a request that waited will not run."""
        self._shares[tenant].waiting -= 1
        self._close()

    def begin(self, tenant: str, tokens: int) -> None:
        """Charge a tenant for a request that waited and runs now.

        Args:
            tenant: the tenant that owns it.
            tokens: its predicted cost.
        """
        share = self._shares[tenant]
        share.waiting -= 1
        self._run(share, tokens)

    def begin_now(self, tenant: str, weight: float, tokens: int, tier: int = 0) -> None:
        """Charge a tenant for a request that runs without waiting, as `join` and `begin` would.

        Args:
            tenant: the tenant that owns it.
            weight: of the tenant from now on, above 0.
            tokens: its predicted cost.
            tier: of the tenant from now on.
        """
        share = self._share(tenant, weight, tier)
        if not share.waiting and share.virtual < self._virtual[tier]:
            share.virtual = self._virtual[tier]
        self._open += 1
        self._run(share, tokens)

    def settle(self, tenant: str, charged: int, used: int) -> None:
        """Correct what a request was charged, once its ticket is returned.

        Args:
            tenant: the tenant that owns it.
            charged: the tokens that were charged at its start.
            used: its actual cost; 0: it never ran.
        """
        share = self._shares[tenant]
        share.virtual += (used - charged) / share.weight
        share.charged_tokens -= charged
        share.running -= 1
        self._close()

    def leads(self) -> dict[str, float]:
        """Return how far each waiting tenant is ahead of the least of its tier.

        The higher, the later a tenant's requests go; 0 for tenants equal to the least.
        """
        waiting = {name: share for name, share in self._shares.items() if share.waiting}
        if len(waiting) < 2:
            return dict.fromkeys(waiting, 0.0)
        least, tie = _least(waiting.values()), self._tie()
        return {
            name: ahead if (ahead := share.virtual - least[share.tier]) > tie else 0.0
            for name, share in waiting.items()
        }

    def least_active(self) -> Mapping[int, float]:
        """Return, by tier, the least virtual time of tenants with waiting or running requests.

        Input of `lead`.
        """
        return _least(share for share in self._shares.values() if share.waiting + share.running)

    def lead(self, tenant: str, least: Mapping[int, float]) -> float:
        """Return how far a tenant is ahead in the workers' lines; 0 if it is equal.

        Running requests count as well: placed work that has not begun does not wait for requests
        that a tenant with more places after it.

        Args:
            tenant: one with waiting requests.
            least: from `least_active`, called while the tenant waits.
        """
        share = self._shares[tenant]
        ahead = share.virtual - least[share.tier]
        return ahead if ahead > self._tie() else 0.0

    def _tie(self) -> float:
        tie = self._tie_seconds * self.tokens_per_second
        return min(tie, _TIE_REQUESTS * self._mean_tokens)

    def _share(self, tenant: str, weight: float, tier: int) -> _Share:
        """Return the share of a tenant, and set its weight and tier."""
        if weight <= 0:
            raise ValueError(f"weight {weight} is out of range: above 0")
        share = self._shares.get(tenant)
        if share is None:
            self._trim()
            share = self._shares[tenant] = _Share(self._virtual[tier], tier)
        elif share.tier != tier:
            # Its time was measured by another tier's clock.
            share.tier, share.virtual = tier, self._virtual[tier]
        share.weight = weight
        return share

    def _run(self, share: _Share, tokens: int) -> None:
        """Charge a tenant for a request that runs now."""
        if share.virtual > self._virtual[share.tier]:
            self._virtual[share.tier] = share.virtual
        share.virtual += tokens / share.weight
        share.charged_tokens += tokens
        self._mean_tokens = _KEEP * (self._mean_tokens or tokens) + (1 - _KEEP) * tokens
        share.running += 1

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._shares.clear()
            self._virtual.clear()
            self._trim_at = _MIN_SHARES

    def _trim(self) -> None:
        """Forget tenants without requests that would begin where the others are."""
        if len(self._shares) < self._trim_at:
            return
        for name, share in list(self._shares.items()):
            if share.waiting or share.running:
                continue
            if share.virtual <= self._virtual[share.tier]:
                del self._shares[name]
        self._trim_at = max(_MIN_SHARES, 2 * len(self._shares))


def _least(shares: Iterable[_Share]) -> dict[int, float]:
    """Return the least virtual time by tier."""
    least: dict[int, float] = {}
    for share in shares:
        known = least.get(share.tier)
        if known is None or share.virtual < known:
            least[share.tier] = share.virtual
    return least
