"""Spending of a budget in a backup and in etcd, added by frontend. Pure."""

from msgspec.structs import replace

from baton.backup.usage_since import UsageSince
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord, encode, parse


def merge_spending(
    name: str,
    saved: bytes,
    stored: bytes | None,
    own: str,
    at_seconds: int,
    usage: UsageSince | None,
) -> bytes:
    """Return the record to restore; the stored one if it has all, or one of both is damaged.

    Of each frontend the later charge counts, that of the higher term and, within a term, of the
    higher cost. What no frontend stands for is one charge with a name of the backup's, which
    another restore replaces: what frontends that were long gone had spent or, with usage records,
    the cost of all requests that is not in etcd.

    Args:
        name: of the record within the cluster.
        saved: its value in the backup.
        stored: its value in etcd; None: there is none.
        own: name of the backup's charge.
        at_seconds: time of the restore. Routers fold charges that did not change for an hour.
        usage: costs of requests; None: unknown.
    """
    try:
        mine = parse(saved)
        theirs = SpendRecord("") if stored is None else parse(stored)
    except ValueError:
        return saved if stored is None else stored
    others = {frontend: one for frontend, one in theirs.frontends.items() if frontend != own}
    if usage is None:
        charges = {
            frontend: replace(one, at_seconds=at_seconds)
            for frontend, one in mine.frontends.items()
        }
        rest = FrontendCharge(1, mine.folded_charged, mine.folded_settled, at_seconds)
    else:
        charges = {}
        known = theirs.folded_settled + sum(one.settled for one in others.values())
        missing = max(0, usage.spent(name, mine.settled) - known)
        rest = FrontendCharge(1, missing, missing, at_seconds)
    charges[own] = rest
    for frontend, charge in theirs.frontends.items():
        before = charges.get(frontend)
        if before is None or _is_as_late(charge, before, frontend == own):
            charges[frontend] = charge
    value = SpendRecord(
        "",  # no router's: the owner takes it in, and does not take it for another owner's
        charges,
        theirs.folded_charged,
        theirs.folded_settled,
        tuple(dict.fromkeys((*mine.alerts, *theirs.alerts))),
    )
    if stored is not None and value == replace(theirs, owner=""):
        return stored
    return encode(value)


def _is_as_late(stored: FrontendCharge, saved: FrontendCharge, is_own: bool) -> bool:
    if is_own:
        return (stored.charged, stored.settled) == (saved.charged, saved.settled)
    return (stored.term, stored.settled) >= (saved.term, saved.settled)
