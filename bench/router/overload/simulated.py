"""The same requests on simulated workers: the queue's effect where CPU is not scarce."""

import numpy as np

from bench.router.overload.load import Offer
from bench.router.studies.runs import run
from services.router.admission.waiting import QueueSettings
from simulator.config import ClusterConfig
from simulator.model.costs import CostModel
from simulator.traces.trace import Trace

MAX_WAIT = 60.0
"""Seconds. Requests that wait longer belong to other sources."""


def ttfts(offer: Offer, source: str, workers: int, rate: float, gate: float) -> list[float]:
    """Return the times to first token of one source, in seconds.

    Args:
        offer: the requests.
        source: the source's name.
        workers: workers that compute prompts and run their streams.
        rate: prompt tokens per second of each.
        gate: the queue's gate, in seconds.
    """
    arrivals = offer.arrivals()
    trace = Trace(
        times=np.array([at for at, _, _ in arrivals]),
        prompt_tokens=[tokens for _, _, tokens in arrivals],
        output_tokens=[offer.output_tokens] * len(arrivals),
        chains=[(number,) for number in range(len(arrivals))],
        tenants=[one.name for _, one, _ in arrivals],
        blocks=len(arrivals),
        block_tokens=4096,
    )
    config = ClusterConfig(workers=workers, costs=CostModel(prefill_rate=rate, step_seconds=0.001))
    settings = QueueSettings(gate=gate, max_wait=MAX_WAIT)
    done = run(trace, config, 1.0, settings=settings)
    return [one.ttft for one in done.requests if one.tenant == source]
