"""Messages between a frontend and the router that owns a bucket.

All amounts are sums since the term began. So a lost message is compensated by the next one, and
a duplicate or late one changes nothing.
"""

from typing import NamedTuple

from baton.tenancy.limits.spec import Limit, LimitId


class Ask(NamedTuple):
    """From a frontend: its use of its share of a bucket, and the units that it wants."""

    limit: Limit
    """The limit, as in the frontend's record."""
    term: int
    """Counts the terms that this frontend began for a limit; of two, the higher is later."""
    base: int
    """Requests that ran when the term began, or the charge of a budget; it counts as granted. 0 for
    per-minute limits."""
    granted: int
    """Units granted, as far as it has received them, including `base`."""
    spent: int
    """Of these, units that it no longer has: used or returned."""
    returned: int
    """Of these, units returned to the bucket."""
    need: int = 0
    """The fewest units with which a waiting request can continue; 0: none waits."""
    want: int = 0
    """Units that all waiting requests need together."""
    ahead: bool = False
    """Whether it wants a chunk ahead of need."""
    confirm: bool = False
    """Whether it wants a reply in any case."""
    settled: int = 0
    """Of a budget: cost of ended requests, over all terms of this frontend's life."""
    keeps: int = 0
    """Of a budget: units kept ahead of need, as last instructed."""
    recent: int = 0
    """Of a per-minute limit: units granted by any router and not returned, within the time in which
    the bucket fills."""

    @property
    def is_report(self) -> bool:
        """Whether it asks for nothing; it is answered only if the term must restart."""
        return not (self.need or self.ahead or self.confirm)


class LimitGrant(NamedTuple):
    """From the router: what it has granted."""

    limit_id: LimitId
    term: int
    """Term of the frontend."""
    granted: int
    """Total units granted, including the base."""
    chunk: int
    """Units that the frontend may hold ahead of need; 0: it should ask for each request."""
    left: int
    """Units in the bucket."""
    wait: float
    """Seconds before which asking again is useless; 0: none."""
    restart: bool = False
    """The router does not know the term as the frontend does: begin a new one."""
    reserved: int = 0
    """Of a budget: units in use by live frontends, which may be returned in part."""
