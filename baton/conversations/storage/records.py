"""The limits of what a tenant may store, what it has stored, and the errors beyond them."""

from typing import NamedTuple

from baton.errors import BatonError, QuotaViolation, Reason


class StorageLimits(NamedTuple):
    """A tenant's limits; 0: no limit of that kind."""

    conversations: int = 0
    """That clients manage."""
    bytes: int = 0
    """Of the bodies of items, responses, summaries and chat completions."""


UNLIMITED = StorageLimits()


class StorageUse(NamedTuple):
    """What a tenant has stored; fields as of `StorageLimits`."""

    conversations: int
    bytes: int


def too_many_conversations(tenant: str, most: int) -> BatonError:
    """Return the error of a conversation beyond a tenant's limit."""
    return _full(
        tenant, "stored_conversations", most, f"the limit of {most} stored conversations is reached"
    )


def too_many_bytes(tenant: str, used: int, most: int) -> BatonError:
    """Return the error of a tenant that has stored as many bytes as it may."""
    return _full(
        tenant,
        "stored_bytes",
        most,
        f"{used} bytes of items, responses, summaries and completions reach the limit of {most}",
    )


def _full(tenant: str, metric: str, most: int, what: str) -> BatonError:
    instead = "" if metric == "stored_conversations" else ", send `store: false`"
    return BatonError(
        Reason.INSUFFICIENT_QUOTA,
        f"tenant {tenant!r}: {what}; delete some{instead}, or ask the operator for more ({metric})",
        quota=QuotaViolation(f"tenant:{tenant}", metric, most),
    )
