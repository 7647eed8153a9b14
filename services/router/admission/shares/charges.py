"""What requests are charged when they are placed, and its correction to their actual cost."""

from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.fairness import FairShares
from services.router.admission.shares.tier_shares import TierShares
from services.router.admission.waiting import TicketCharge, WaitingRequest


class ShareCharges:
    """Charges a model's tenants, tiers and classes for its requests. Owned by one event loop.

    Args:
        shares: of the tenants.
        tiers: of the tenants' tiers.
        classes: of priority classes.
    """

    def __init__(self, shares: FairShares, tiers: TierShares, classes: ClassShares) -> None:
        self._shares = shares
        self._tiers = tiers
        self._classes = classes

    def begin(self, waiting: WaitingRequest, uncached_tokens: int) -> TicketCharge:
        """Charge for a request that waited and is placed now.

        Args:
            waiting: the request, which has joined the shares, tiers and classes.
            uncached_tokens: tokens of its prompt that are to be computed.
        """
        charge = self._price(waiting, uncached_tokens)
        self._shares.begin(charge.tenant, charge.tokens)
        self._tiers.begin(charge.tier, charge.tokens)
        owed = self._classes.begin(charge.priority_class, charge.tokens, uncached_tokens)
        return charge._replace(owed=True) if owed else charge

    def begin_now(self, waiting: WaitingRequest, uncached_tokens: int) -> TicketCharge:
        """Charge for a request that is placed without waiting.

        Args:
            waiting: the request.
            uncached_tokens: tokens of its prompt that are to be computed.
        """
        charge = self._price(waiting, uncached_tokens)
        self._shares.begin_now(charge.tenant, waiting.weight, charge.tokens, charge.tier)
        self._tiers.begin_now(charge.tier, charge.tokens)
        owed = self._classes.begin_now(charge.priority_class, charge.tokens, uncached_tokens)
        return charge._replace(owed=True) if owed else charge

    def settle(
        self,
        charge: TicketCharge,
        uncached_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """Correct what a request was charged, once its ticket is returned.

        Args:
            charge: returned by `begin`; each is settled once.
            uncached_tokens: prompt tokens that were computed; None: as predicted; 0, with no
                output, for a request that never ran.
            output_tokens: tokens that were generated; None: as predicted.
        """
        tenant, tier, priority_class, weight, charged, uncached, output, owed = charge
        used, more = charged, 0
        if uncached_tokens is not None or output_tokens is not None:
            computed = uncached if uncached_tokens is None else uncached_tokens
            output = output if output_tokens is None else output_tokens
            used, more = self._cost(computed, output, weight), computed - uncached
        self._shares.settle(tenant, charged, used)
        self._tiers.settle(tier, charged, used)
        self._classes.settle(priority_class, used - charged, more, owed=owed)

    def _price(self, waiting: WaitingRequest, uncached_tokens: int) -> TicketCharge:
        """Return what a request is charged, without its class's floor."""
        tenant, tier, priority_class = waiting.tenant, waiting.rank[0], waiting.priority_class
        output, weight = waiting.output_tokens, self._classes.policy.of(priority_class).weight
        tokens = self._cost(uncached_tokens, output, weight)
        return TicketCharge(
            tenant, tier, priority_class, weight, tokens, uncached_tokens, output, owed=False
        )

    def _cost(self, uncached_tokens: int, output_tokens: int, weight: float) -> int:
        cost = self._shares.cost(uncached_tokens, output_tokens)
        return cost if weight == 1.0 else round(cost / weight)
