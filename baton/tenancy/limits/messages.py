"""What a frontend and the router that owns a bucket tell each other.

All amounts are sums since the term began. So a message that is lost is made good by the next one,
and one that comes twice or late changes nothing.
"""

from typing import NamedTuple

from baton.tenancy.limits.spec import Limit, LimitId


class Ask(NamedTuple):
    """From a frontend: what it has done with its share of a bucket, and what it wants."""

    limit: Limit
    """As the frontend's record has it."""
    term: int
    """Counts the times that this frontend began with a limit anew; of two the higher is later."""
    base: int
    """Requests that ran when the term began, or what was charged to a budget; it counts as granted.
    0 for limits per minute."""
    granted: int
    """Units that it was told of, with `base`."""
    spent: int
    """Of these, those that it has no more: used or returned."""
    returned: int
    """Of these, those that the bucket gets back."""
    need: int = 0
    """The fewest units that let a waiting request go on; 0: none waits."""
    want: int = 0
    """Units that all waiting requests need together."""
    ahead: bool = False
    """Whether it wants a chunk ahead of need."""
    confirm: bool = False
    """Whether it wants an answer in any case."""
    settled: int = 0
    """Of a budget: what ended requests cost, whatever the term, in this frontend's life."""
    keeps: int = 0
    """Of a budget: units that it keeps ahead of need, as it was told last."""
    recent: int = 0
    """Of a limit per minute: units that it was granted and did not return, by any router, in the
    time in which the bucket fills."""

    @property
    def is_report(self) -> bool:
        """Whether it wants nothing; it is answered only where the term must begin anew."""
        return not (self.need or self.ahead or self.confirm)


class LimitGrant(NamedTuple):
    """From the router: what it has granted."""

    limit_id: LimitId
    term: int
    """Of the frontend."""
    granted: int
    """Units in all, with the base."""
    chunk: int
    """Units that the frontend may have ahead of need; 0: it should ask for each request."""
    left: int
    """Units in the bucket."""
    wait: float
    """Seconds until which it is of no use to ask again; 0: there are none."""
    restart: bool = False
    """The router does not know the term as the frontend does: begin a new one."""
    reserved: int = 0
    """Of a budget: units in use by frontends that live, which may come back in part."""
