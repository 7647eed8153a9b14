"""Errors of requests that exceed their limits, and their metrics."""

from baton.errors import BatonError, QuotaViolation, Reason
from baton.tenancy.limits.limit_set import LimitRefusal
from baton.tenancy.limits.spec import FIELDS, Limit, Measure
from services.frontend.metrics import LIMIT_REFUSALS


def refused(refusal: LimitRefusal) -> BatonError:
    """Return the error of a request that exceeds a limit, and count it."""
    limit = refusal.limit
    kind = FIELDS[limit.id.measure]
    LIMIT_REFUSALS.labels(kind, limit.id.subject.value).inc()
    cost = limit.id.measure is Measure.COST
    return BatonError(
        Reason.INSUFFICIENT_QUOTA if cost else Reason.RATE_LIMITED,
        refusal.sentence,
        retry_after=refusal.retry_after,
        quota=QuotaViolation(f"{limit.id.subject}:{limit.id.name}", kind, limit.amount),
    )


def unpriced(limit: Limit, model: str) -> BatonError:
    """Return the error of a request for a model without a price, whose cost cannot be counted."""
    return BatonError(
        Reason.FAILED_PRECONDITION,
        f"model {model[:200]!r} has no price, and {limit.whose} has a budget: use a model with a "
        "price, or ask the operator to set one (usage.prices of the frontends)",
        field="model",
    )


def count_unanswered() -> None:
    """Count a request whose limits could not be checked."""
    LIMIT_REFUSALS.labels("unanswered", "").inc()
