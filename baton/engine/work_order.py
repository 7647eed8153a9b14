"""Who goes before whom at an engine: the router's order, which travels with the work."""

from typing import NamedTuple

AGE = 0.005
"""Seconds of computing that a second of waiting makes up for: what routers have as `queue.age`."""


class WorkOrder(NamedTuple):
    """Place of a prompt among those that wait. The lowest goes first; among equals, the first."""

    tier: int = 0
    """Rank of the tenant's tier, or whether that was given more than another tier."""
    priority_class: int = 0
    """Rank of the request's class within it."""
    tenant_lead: float = 0.0
    """Tokens that the tenant was given beyond what others that wait were."""
    key: float = 0.0
    """Seconds that computing the prompt takes, plus `AGE` times when it came, in seconds since
    1970. All that wait age alike, so that it need not change."""


BY_ARRIVAL = WorkOrder()
"""Of work that goes in the order in which it came."""
