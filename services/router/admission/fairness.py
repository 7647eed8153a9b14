"""Start-time fair queueing: tenants share what workers compute by their weights.

A tenant's virtual time is what it was given, in tokens by weight. Tenants go by it, and those that
are close to the least count as equal, so that among them the shortest prompts go first. A tenant
that comes back begins at the virtual time of the others: what it did not use is lost, and what it
had too much is not forgotten while others wait. What a request will cost is predicted when it goes,
and put right when its ticket comes back.
"""

from dataclasses import dataclass

TIE_TOKENS = 16_000
"""What a worker of 8,000 tokens per second computes in 2 s."""
OUTPUT_WEIGHT = 2
"""An output token costs as much as so many prompt tokens."""
_MIN_SHARES = 1_024


@dataclass(slots=True)
class _Share:
    virtual: float
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
        tie_tokens: tenants whose virtual time exceeds the least by no more are equal.
        output_weight: prompt tokens that an output token costs as much as.
    """

    def __init__(self, tie_tokens: float = TIE_TOKENS, output_weight: int = OUTPUT_WEIGHT) -> None:
        self._tie_tokens = tie_tokens
        self._output_weight = output_weight
        self._shares: dict[str, _Share] = {}
        self._virtual = 0.0
        """Where the tenant stood whose request went last; it never goes back."""
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

    def join(self, tenant: str, weight: float) -> None:
        """Note that a request begins to wait.

        Args:
            tenant: whose it is.
            weight: of the tenant from now on, above 0.
        """
        if weight <= 0:
            raise ValueError(f"a weight of {weight} is not above 0")
        share = self._shares.get(tenant)
        if share is None:
            self._trim()
            share = self._shares[tenant] = _Share(self._virtual)
        if not share.waiting:
            share.virtual = max(share.virtual, self._virtual)
        share.weight = weight
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
        self._virtual = max(self._virtual, share.virtual)
        share.virtual += tokens / share.weight
        share.charged_tokens += tokens
        share.waiting -= 1
        share.running += 1

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
        """Return how far each tenant that waits is ahead of the least; 0 for those that are equal.

        The higher, the later a tenant's requests go.
        """
        waiting = {name: share.virtual for name, share in self._shares.items() if share.waiting}
        if len(waiting) < 2:
            return dict.fromkeys(waiting, 0.0)
        least = min(waiting.values())
        return {
            name: ahead if (ahead := virtual - least) > self._tie_tokens else 0.0
            for name, virtual in waiting.items()
        }

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._shares.clear()
            self._virtual, self._trim_at = 0.0, _MIN_SHARES

    def _trim(self) -> None:
        """Forget tenants that have nothing here and would begin where the others are."""
        if len(self._shares) < self._trim_at:
            return
        for name, share in list(self._shares.items()):
            if not share.waiting and not share.running and share.virtual <= self._virtual:
                del self._shares[name]
        self._trim_at = max(_MIN_SHARES, 2 * len(self._shares))
