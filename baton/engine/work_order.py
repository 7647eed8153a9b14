"""Order of work at an engine, which the router determines and sends with the work."""

from typing import NamedTuple

AGE = 0.005
"""Seconds of computation that a second of waiting offsets: the routers' setting `queue.age`."""


class WorkOrder(NamedTuple):
    """Position of a prompt among those that wait. The lowest is first; of equals, the earliest."""

    tier: int = 0
    """Rank of the tenant's tier, or whether its tier has received more than another."""
    priority_class: int = 0
    """Rank of the request's class. It precedes the tier: running sequences of lower classes give
    way to those of higher ones.
    """
    tenant_lead: float = 0.0
    """Tokens that the tenant received in excess of others that wait."""
    key: float = 0.0
    """Seconds that computing the prompt takes, plus `AGE` times its arrival time in seconds since
    1970. All waiting work ages alike, so that the key need not change.
    """


INTERRUPTED_OFTEN = 2
"""Rank of a class from which on prompts are cut so that a step takes no longer than
`SequenceRequest.step_seconds`, also while nothing else runs: whoever comes waits for one step."""
BY_ARRIVAL = WorkOrder()
"""Order of work that is served in order of arrival."""
