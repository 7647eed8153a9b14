"""How many replicas the parts of a demand need, as numbers that are not whole."""

import math

from services.router.sizing.decision import Need, SizingReason, largest
from services.router.sizing.demand import ModelDemand
from services.router.sizing.settings import SizingSettings


def prefill_need(
    demand: ModelDemand,
    backlog_tokens: float,
    there: int,
    rate: float | None,
    ttft_target: float,
    settings: SizingSettings,
) -> Need:
    """Return the replicas that prompts need: for what arrives, plus a backlog.

    Arrivals use `utilization` of the rate. Of the backlog, the replicas there compute a part within
    half of the TTFT target; the rest is to be computed within `backlog_seconds`. Rejected requests
    count for no more than the accepted ones, because a client that retries is counted again.

    Args:
        demand: of all routers.
        backlog_tokens: prompt tokens to compute, in routers and at replicas.
        there: replicas that compute, or soon will.
        rate: prompt tokens per second of a replica; None: not known.
        ttft_target: in seconds.
        settings: constants.
    """
    tokens = demand.arrived_tokens + min(demand.refused_tokens, demand.arrived_tokens)
    if not tokens and not backlog_tokens:
        return Need(0.0, SizingReason.ARRIVALS)
    if rate is None:
        return Need(0.0, SizingReason.ARRIVALS, known=False)
    arrivals = tokens / settings.arrival_seconds / (settings.utilization * rate)
    beyond = max(0.0, backlog_tokens - there * rate * ttft_target / 2)
    backlog = beyond / (settings.backlog_seconds * rate)
    binds = math.ceil(arrivals + backlog) > math.ceil(arrivals)
    return Need(arrivals + backlog, SizingReason.BACKLOG if binds else SizingReason.ARRIVALS)


def decode_need(
    sequences: int,
    pages: float,
    pages_per_replica: float | None,
    batch: float,
    settings: SizingSettings,
) -> Need:
    """Return the replicas that streams need: by KV pages or by batch, whichever binds.

    Args:
        sequences: running, waiting and queued.
        pages: KV pages that they hold, or are counted for.
        pages_per_replica: None: not known.
        batch: most sequences of a replica, by the target between tokens and its own limit;
            infinite: not limited, or not known.
        settings: constants.
    """
    if not sequences and not pages:
        return Need(0.0, SizingReason.BATCH)
    needs = [Need(sequences / (settings.occupancy * batch), SizingReason.BATCH)]
    if pages_per_replica is not None:
        needs.append(Need(pages / (settings.occupancy * pages_per_replica), SizingReason.KV))
    known = pages_per_replica is not None or batch < math.inf
    return largest(needs)._replace(known=known)
