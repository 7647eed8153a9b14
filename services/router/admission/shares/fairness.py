"""Start-time fair queueing: tenants of a tier share what it is given by their weights.

A tenant's virtual time is what it was given, in tokens by weight. Tenants of a tier go by it, and
those that are close to the least count as equal, so that among them the shortest prompts go first.
A tenant that comes back begins at the virtual time of the others: what it did not use is lost, and
what it had too much is not forgotten while others wait. Each tier has times of its own, for tiers
are not given equally much. What a request will cost is predicted when it goes,
and put right when its ticket comes back.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TIE_SECONDS = 2.0
"""Of a worker's computing."""
_TIE_REQUESTS = 2.0
"""Of the mean cost."""
_KEEP = 1 - 1 / 256
"""Share of the mean cost that counts beside a new request's."""
OUTPUT_WEIGHT = 2
"""An output token costs as much as so many prompt tokens."""
_MIN_SHARES = 1_024


@dataclass(slots=True)
class _Share:
    virtual: float
    tier: int
    weight: float = 1.0
    waiting: int = 0
    """Requests."""
    running: int = 0
    """Requests whose tickets are not back."""
    charged_tokens: int = 0
    """Of those that run."""


class FairShares:
    """Virtual times of tenants. When nothing waits or runs, nothing is kept. One loop owns it.

    Args:
        tie_seconds: tenants whose virtual time exceeds the least by no more than a worker computes
            in so long are equal, and by no more than two requests cost.
        output_weight: prompt tokens that an output token costs as much as.
    """

    def __init__(
        self, tie_seconds: float = TIE_SECONDS, output_weight: int = OUTPUT_WEIGHT
    ) -> None:
        self.tokens_per_second = 1_000.0
        """Of a worker, as who knows the workers says."""
        self._tie_seconds = tie_seconds
        self._output_weight = output_weight
        self._shares: dict[str, _Share] = {}
        self._mean_tokens = 0.0
        """That a request costs lately."""
        self._virtual: defaultdict[int, float] = defaultdict(float)
        """Where the tenant of each tier stood whose request went last; it never goes back."""
        self._open = 0
        """Requests that wait or run."""
        self._trim_at = _MIN_SHARES

    def __len__(self) -> int:
        """Return the number of tenants that are remembered."""
        return len(self._shares)

    def cost(self, uncached_tokens: int, output_tokens: int) -> int:
        """Return what a request costs its tenant, in prompt tokens."""
        return uncached_tokens + self._output_weight * output_tokens

    def charged_tokens(self, tenant: str) -> int:
        """Return what a tenant's requests that run were charged."""
        share = self._shares.get(tenant)
        return share.charged_tokens if share is not None else 0

    def join(self, tenant: str, weight: float, tier: int = 0) -> None:
        """Note that a request begins to wait.

        Args:
            tenant: whose it is.
            weight: of the tenant from now on, above 0.
            tier: of the tenant from now on.
        """
        share = self._share(tenant, weight, tier)
        if not share.waiting:
            share.virtual = max(share.virtual, self._virtual[tier])
        share.waiting += 1
        self._open += 1

    def leave(self, tenant: str) -> None:
        """Note that a request that waited will not run."""
        self._shares[tenant].waiting -= 1
        self._close()

    def begin(self, tenant: str, tokens: int) -> None:
        """Charge a tenant for a request that waited and runs now.

        Args:
            tenant: whose it is.
            tokens: its predicted cost.
        """
        share = self._shares[tenant]
        share.waiting -= 1
        self._run(share, tokens)

    def begin_now(self, tenant: str, weight: float, tokens: int, tier: int = 0) -> None:
        """Charge a tenant for a request that runs and did not wait, as `join` and `begin` would.

        Args:
            tenant: whose it is.
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
        """Put right what a request was charged: its ticket is back.

        Args:
            tenant: whose it was.
            charged: the tokens that it began with.
            used: what it cost in fact; 0: it never ran.
        """
        share = self._shares[tenant]
        share.virtual += (used - charged) / share.weight
        share.charged_tokens -= charged
        share.running -= 1
        self._close()

    def leads(self) -> dict[str, float]:
        """Return how far each tenant that waits is ahead of the least of its tier.

        The higher, the later a tenant's requests go; 0 for those that are equal to the least.
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
        """Return, by tier, the least virtual time of tenants that have something here.

        For `lead`.
        """
        return _least(share for share in self._shares.values() if share.waiting + share.running)

    def lead(self, tenant: str, least: Mapping[int, float]) -> float:
        """Return how far a tenant is ahead in the lines of workers; 0 if it is equal.

        Those that run count as well: what was placed and has not begun is not to wait for requests
        that a tenant with more places after it.

        Args:
            tenant: one that waits.
            least: of `least_active`, since it waits.
        """
        share = self._shares[tenant]
        ahead = share.virtual - least[share.tier]
        return ahead if ahead > self._tie() else 0.0

    def _tie(self) -> float:
        tie = self._tie_seconds * self.tokens_per_second
        return min(tie, _TIE_REQUESTS * self._mean_tokens)

    def _share(self, tenant: str, weight: float, tier: int) -> _Share:
        """Return the share of a tenant, whose weight and tier are these from now on."""
        if weight <= 0:
            raise ValueError(f"weight {weight} is out of range: above 0")
        share = self._shares.get(tenant)
        if share is None:
            self._trim()
            share = self._shares[tenant] = _Share(self._virtual[tier], tier)
        elif share.tier != tier:
            # Its time was that of another clock.
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
        """Forget tenants that have nothing here and would begin where the others are."""
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
