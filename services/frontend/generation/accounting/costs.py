"""The most that a request may cost, which budgets reserve before it runs."""

from baton.request.prices import Price, PriceTable
from baton.tenancy.limits.limit_set import LimitSet
from baton.v1 import common_pb2
from services.frontend.access.refusals import unpriced
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest


def price_of(prices: PriceTable, request: ResolvedRequest, record: RequestRecord) -> Price | None:
    """Return the price of a request: of the table, or its provider's; None if it has none."""
    context = request.context
    batch = context.priority == common_pb2.PRIORITY_CLASS_BATCH
    tier = record.principal.tenant.tier.value
    own = request.model.own_price
    return prices.find(context.model, context.adapter, tier, batch=batch, own=own)


def worst_case(request: ResolvedRequest, price: Price | None, limits: LimitSet) -> int:
    """Return the most nano-dollars that a request may cost; 0 if no budget applies.

    Raises:
        BatonError: FAILED_PRECONDITION: a budget applies and the model has no price.
    """
    if not limits.budgets:
        return 0
    if price is None:
        if limits.budget is not None:
            raise unpriced(limits.budget, request.named)
        return 0
    prompt = len(request.prompt)
    return price.most(max(prompt, request.prompt_bound), request.most_tokens - prompt)
